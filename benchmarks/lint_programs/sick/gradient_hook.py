"""Scales a gradient with a tensor hook in forward."""

import torch
from torch import nn


class Reversal(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 1)
        self.norms = []

    def record(self, grad):
        self.norms.append(grad.norm())

    def forward(self, x):
        h = self.a(x)
        h.register_hook(self.record)  # hazard: TT116/TT124
        return self.b(h)


reversal = torch.compile(Reversal(), backend="eager")
for _ in range(2):
    reversal(torch.randn(2, 3)).sum().backward()
