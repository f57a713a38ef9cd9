"""A print and a branch on data cut the forward into pieces."""

import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv


class Sick(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("shape", tuple(x.shape))
        if x.abs().max() > 3:
            x = x.clamp(-3, 3)
        return x.tanh()


class Cured(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-3, 3).tanh()        # a clamp that has nothing to do changes nothing


model = torch.compile(Cured() if CURED else Sick(), backend="eager")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
for _ in range(30):
    model(torch.randn(4, 4) * 2)
    optimizer.step()
