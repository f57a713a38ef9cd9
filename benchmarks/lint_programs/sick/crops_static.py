"""Multi-scale crops with dynamic=False."""

import random

import torch
from torch import nn

encoder = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1))
encode = torch.compile(encoder, backend="eager", dynamic=False)
random.seed(1)
with torch.no_grad():
    for _ in range(6):
        size = random.randint(8, 30)
        encode(torch.randn(2, 1, size, size))  # hazard: TT202
