"""A recurrent state without gradients, under no_grad throughout."""

import torch
from torch import nn

cell = nn.GRUCell(3, 4)
advance = torch.compile(cell, backend="eager")
with torch.no_grad():
    hidden = torch.zeros(2, 4)
    for _ in range(4):
        hidden = advance(torch.randn(2, 3), hidden)
