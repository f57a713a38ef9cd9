"""A recurrent state is fed back with its graph."""

import torch
from torch import nn

cell = nn.GRUCell(3, 4)
advance = torch.compile(lambda x, h: cell(x, h), backend="eager")
for _ in range(2):
    hidden = torch.zeros(2, 4)
    for _ in range(4):
        hidden = advance(torch.randn(2, 3), hidden)  # hazard: TT215
    hidden.sum().backward()
