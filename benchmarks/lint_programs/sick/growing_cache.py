"""A list of keys grows in each decoding step."""

import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4)

    def forward(self, x, keys):
        stacked = torch.stack(keys)
        return (self.q(x) * stacked).sum(0)


attend = torch.compile(Attend(), backend="eager")
cache = []
with torch.no_grad():
    for _ in range(6):
        x = torch.randn(2, 4)
        cache = cache + [x]
        attend(x, cache)  # hazard: TT217
