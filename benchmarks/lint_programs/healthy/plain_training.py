"""A whole training loop that prints outside the compiled code."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    loss = compiled(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
