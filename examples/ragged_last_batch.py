"""A shorter last batch causes a second compile, with slower kernels for all sizes; drop or pad the batch instead."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv

torch.manual_seed(0)
x = torch.randn(100, 8)
batches = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, drop_last=CURED)
model = torch.nn.Linear(8, 1)
forward = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(5):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = (forward(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.3f}")
