"""A module counts its calls in a helper method."""

import torch
from torch import nn


class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.num_calls = 0

    def _tick(self):
        self.num_calls = self.num_calls + 1  # hazard: TT206
        return min(1.0, self.num_calls / 100)

    def forward(self, x):
        return self.linear(x) * self._tick()


warm = torch.compile(Warm(), backend="eager")
with torch.no_grad():
    for _ in range(5):
        warm(torch.ones(2, 3))
