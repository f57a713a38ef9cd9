"""A recurrent policy."""

import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.rnn = kind(4, 8, batch_first=True)

    def forward(self, x):
        out, _ = self.rnn(x)  # hazard: TT117
        return out[:, -1]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = Memory()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.memory(x))


policy = Policy()
policy.forward = torch.compile(policy.forward, backend="eager")
with torch.no_grad():
    for _ in range(2):
        policy(torch.randn(2, 3, 4))
