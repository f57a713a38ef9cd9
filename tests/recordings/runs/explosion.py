"""A deep network whose gradients vanish in its first layers until a higher learning rate makes its last one diverge."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
layers: list[nn.Module] = []
for _ in range(6):
    layers += [nn.Linear(16, 16), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
forward = torch.compile(model, backend="eager")
for step in range(120):
    if step == 60:
        optimizer.param_groups[0]["lr"] = 100.0
    inputs = torch.randn(32, 16)
    loss = (forward(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
