"""A loop over a fixed list of layers, unrolled once."""

import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x) if number % 2 else layer(x).relu()
        return x


stack = torch.compile(Stack(), backend="eager")
for _ in range(2):
    stack(torch.randn(2, 3))
