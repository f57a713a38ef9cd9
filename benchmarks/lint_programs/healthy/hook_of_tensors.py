"""A forward hook that stays in the graph."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
net[0].register_forward_hook(lambda module, args, out: out.clamp(-5, 5))
compiled = torch.compile(net, backend="eager")
for _ in range(3):
    compiled(torch.randn(2, 3))
