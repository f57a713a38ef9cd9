"""Training over epochs whose last batch is shorter than the others.

Best: the batch marked; dynamic=True costs 5 % more. Automatic shapes pay for two compiles: a static one, then a
symbolic one that serves every later batch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(1000, 64)
batches = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=96)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 1))
forward = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(100):
    for inputs, targets in batches:
        loss = (forward(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}")
