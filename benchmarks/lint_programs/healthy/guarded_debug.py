"""Checks that run only outside the compiler."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        y = self.linear(x)
        if not torch.compiler.is_compiling() and not y.isfinite().all():
            raise ValueError("not finite")
        return y


net = torch.compile(Net(), backend="eager")
for _ in range(2):
    net(torch.randn(2, 3))
