"""A counter of zero dimensions in float64, which a compiled function updates in place."""

import torch


@torch.compile
def update(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    total.add_(1.0)
    return x * 2


total = torch.zeros((), dtype=torch.float64)
for _ in range(3):
    update(total, torch.ones(4))
print(total.item())
