"""A resumable loop with a scheduler, clipping and a sum of detached losses."""

import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
running = torch.zeros(())
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    running += loss.detach()
print(f"{running.item() / 4:.3f} {norm.item():.3f}")
