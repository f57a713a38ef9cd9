"""Autocast is on in some steps."""

import torch
from torch import nn

net = torch.compile(nn.Linear(4, 4), backend="eager")
with torch.no_grad():
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 0):
            net(torch.randn(2, 4))  # hazard: TT210
