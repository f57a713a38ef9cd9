"""The unroll length grows with the epoch."""

import torch
from torch import nn

cell = nn.Linear(4, 4)


@torch.compile(backend="eager")
def unroll(state, depth):
    for _ in range(depth):
        state = torch.tanh(cell(state))
    return state


def train_epoch(epoch, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        loss = unroll(torch.randn(2, 4), 1 + epoch).square().mean()  # hazard: TT204
        loss.backward()
        optimizer.step()


def main(epochs=6):
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    for epoch in range(epochs):
        train_epoch(epoch, optimizer)


main()
