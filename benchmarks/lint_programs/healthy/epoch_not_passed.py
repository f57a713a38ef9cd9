"""The loop variable stays outside the compiled function."""

import torch
from torch import nn

net = torch.compile(nn.Linear(3, 1), backend="eager")


def train_epoch(epoch, data):
    total = 0.0
    for x in data:
        total += net(x).sum().item()
    print(f"epoch {epoch}: {total:.2f}")


for epoch in range(3):
    train_epoch(epoch, [torch.randn(4, 3) for _ in range(2)])
