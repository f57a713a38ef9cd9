"""A property turns a parameter into a number."""

import torch
from torch import nn


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    @property
    def scale(self):
        return self.log_scale.exp().item()  # hazard: TT104/TT119

    def forward(self, a, b):
        return nn.functional.cosine_similarity(a, b) * self.scale


cosine = torch.compile(Cosine(), backend="eager")
for _ in range(3):
    cosine(torch.randn(3, 4), torch.randn(3, 4))
