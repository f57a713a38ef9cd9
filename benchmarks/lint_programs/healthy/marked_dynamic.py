"""dynamic=False, with the dimension that varies marked."""

import torch
from torch import nn

encoder = torch.compile(nn.Linear(4, 4), backend="eager", dynamic=False)
with torch.no_grad():
    for length in (5, 9, 12, 7, 30):
        x = torch.randn(length, 4)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        encoder(x)
