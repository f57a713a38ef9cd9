"""dynamic=False and one size."""

import torch
from torch import nn

encoder = torch.compile(nn.Linear(4, 4), backend="eager", dynamic=False)
with torch.no_grad():
    for step in range(5):
        encoder(torch.full((8, 4), float(step)))
