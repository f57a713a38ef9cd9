"""Two batch sizes of a small model, for many thousands of calls, compiled with dynamic=True.

Best: the batch marked, which is one compile; dynamic=False and automatic take two. A call takes microseconds, so every
symbolic size that is passed to a kernel matters.
"""

import torch
from torch import Tensor


def features(x_BTD: Tensor) -> Tensor:
    """Pairwise distances of eight points in four dimensions, as soft weights."""
    distance_BTT = (x_BTD[:, :, None] - x_BTD[:, None]).square().sum(-1)
    weights_BTT = torch.softmax(-distance_BTT, -1)
    return (weights_BTT[..., None] * x_BTD[:, None]).sum(2).amax(1)


torch.set_num_threads(1)
torch.manual_seed(0)
describe = torch.compile(features, dynamic=True)
batches = [torch.randn(size, 8, 4) for size in (4, 16)]
total = torch.zeros(())
with torch.no_grad():
    for number in range(12_000):
        total += describe(batches[number % 2]).mean()
print(f"total {total.item():.3f}")
