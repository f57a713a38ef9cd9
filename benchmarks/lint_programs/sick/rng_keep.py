"""Draws a Python number to drop a layer."""

import random

import torch
from torch import nn


class Stochastic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        order = list(self.layers)
        random.shuffle(order)  # hazard: TT125
        for layer in order:
            x = layer(x)
        return x


net = torch.compile(Stochastic(), backend="eager")
with torch.no_grad():
    for _ in range(3):
        net(torch.randn(2, 4))
