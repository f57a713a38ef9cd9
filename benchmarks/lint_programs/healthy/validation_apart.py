"""Validation with the original module under no_grad in eval mode, then train again."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1), nn.Linear(3, 1))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def validate(net, batches):
    net.eval()
    score = sum(net(x).mean().item() for x in batches) / len(batches)
    net.train()
    return score


for epoch in range(2):
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        compiled(torch.randn(4, 3)).mean().backward()
        optimizer.step()
validate(model, [torch.randn(4, 3)])
