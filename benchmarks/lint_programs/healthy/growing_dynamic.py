"""Sizes vary under automatic dynamic shapes."""

import torch
from torch import nn

encoder = torch.compile(nn.Linear(4, 4), backend="eager")
with torch.no_grad():
    for length in (5, 9, 12, 7, 30):
        encoder(torch.randn(length, 4))
