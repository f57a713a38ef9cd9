"""Registers a pre-hook in the constructor of a module."""

import torch
from torch import nn


class Guarded(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.register_forward_pre_hook(self.check)

    def check(self, module, args):
        print("input", tuple(args[0].shape))  # hazard: TT101

    def forward(self, x):
        return self.linear(x).relu()


guarded = torch.compile(Guarded(), backend="eager")
with torch.no_grad():
    for _ in range(2):
        guarded(torch.randn(2, 3))
