"""One observation is passed without a batch dimension."""

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, obs):
        return self.net(obs)


class Agent:
    def __init__(self):
        self.value = torch.compile(Critic(), backend="eager")

    def act(self):
        obs = torch.randn(4)
        return self.value(obs)  # hazard: TT214

    def learn(self):
        return self.value(torch.randn(32, 4)).mean()


agent = Agent()
for _ in range(3):
    agent.act()
    agent.learn()
