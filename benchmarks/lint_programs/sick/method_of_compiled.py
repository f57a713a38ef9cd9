"""Calls another method of a compiled module."""

import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Linear(3, 2)

    def act(self, obs):
        return self.pi(obs).argmax(-1)

    def forward(self, obs):
        return self.pi(obs)


class Runner:
    def __init__(self):
        self.agent = torch.compile(Agent(), backend="eager")

    def run(self):
        for _ in range(4):
            self.agent.act(torch.randn(2, 3))  # hazard: TT303


Runner().run()
