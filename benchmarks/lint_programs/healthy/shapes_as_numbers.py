"""Branches on shapes, None and types, all known to the compiler."""

import torch
from torch import nn


class Pad(nn.Module):
    def forward(self, x, to=8, weight=None):
        if x.shape[-1] % to:
            x = nn.functional.pad(x, (0, to - x.shape[-1] % to))
        if x.dim() == 2 and x.dtype == torch.float32:
            x = x[None]
        if weight is not None:
            x = x * weight
        return x


pad = torch.compile(Pad(), backend="eager")
for _ in range(2):
    pad(torch.randn(2, 5))
