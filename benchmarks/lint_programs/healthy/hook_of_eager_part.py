"""A hook with a host read on a module that is not compiled."""

import torch
from torch import nn

seen = []
backbone, head = nn.Linear(3, 3), nn.Linear(3, 1)
backbone.register_forward_hook(lambda module, args, out: seen.append(out.max().item()))
fast_head = torch.compile(head, backend="eager")
with torch.no_grad():
    for _ in range(3):
        fast_head(backbone(torch.randn(2, 3)))
