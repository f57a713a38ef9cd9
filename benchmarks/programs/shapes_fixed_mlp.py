"""Training of an MLP on batches of one size.

Best: unmodified. No shape changes, so automatic and static compile the same code once; symbolic shapes can only cost.
"""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 1))
forward = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(800):
    x = torch.randn(128, 64)
    loss = (forward(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
