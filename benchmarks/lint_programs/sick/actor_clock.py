"""Times the forward of an actor from inside."""

import time

import torch
from torch import nn


class Stopwatch:
    def __init__(self):
        self.laps = []

    def lap(self):
        self.laps.append(time.perf_counter())  # hazard: TT125


class Actor(nn.Module):
    def __init__(self, watch):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)
        self.watch = watch

    def forward(self, obs):
        hidden = torch.tanh(self.body(obs))
        self.watch.lap()
        return self.head(hidden)


actor = torch.compile(Actor(Stopwatch()), backend="eager")
with torch.no_grad():
    for _ in range(3):
        actor(torch.randn(2, 4))
