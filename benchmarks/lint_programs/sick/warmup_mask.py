"""No mask in the first steps."""

import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x, weights=None):
        y = self.proj(x)
        return y.mean(1) if weights is None else (y * weights[..., None]).sum(1)


pool = torch.compile(Pool(), backend="eager")
with torch.no_grad():
    for step in range(6):
        x = torch.randn(2, 5, 4)
        if step < 3:
            weights = None
        else:
            weights = torch.rand(2, 5)
        pool(x, weights)  # hazard: TT218
