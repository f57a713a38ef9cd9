"""A cheap function over signals of hundreds of lengths, compiled with dynamic=False.

Best: dynamic=True, or the length marked. Static compiles end at the limit, after which every call runs eager.
"""

import torch
from torch import Tensor


def smooth(signal_T: Tensor) -> Tensor:
    """Differences, squashed, and their energy relative to the whole."""
    change = signal_T[1:] - signal_T[:-1]
    squashed = torch.tanh(change) * torch.sigmoid(change.abs()) + 0.1 * torch.sin(change)
    return squashed.square().sum() / (1e-6 + signal_T.square().sum())


torch.set_num_threads(1)
energy = torch.compile(smooth, dynamic=False)
generator = torch.Generator().manual_seed(0)
total = 0.0
for _ in range(3000):
    length = int(torch.randint(2000, 6000, (), generator=generator))
    total += energy(torch.randn(length, generator=generator)).item()
print(f"total {total:.3f}")
