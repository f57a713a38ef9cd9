"""Layers."""

import torch
from torch import nn


class TopMask(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        gate = self.gate(x).sigmoid()
        return x[gate > 0.5].sum()  # hazard: TT105
