"""A hook on a compiled module, and a device move in forward."""

import torch
from torch import nn


class Scaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(3)

    def forward(self, x):
        if self.mean.device != x.device:
            self.mean = self.mean.to(x.device)  # hazard: TT738
        return x - self.mean


model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
compiled = torch.compile(model, backend="eager")
compiled(torch.randn(2, 3))
model[0].register_forward_hook(lambda module, args, out: out * 2)  # hazard: TT732
compiled(torch.randn(2, 3))
scaler = Scaler()
scaler(torch.randn(2, 3))
