"""Half of the batches arrive in double precision."""

import torch


@torch.compile(backend="eager")
def normalise(x):
    return (x - x.mean()) / x.std()


for step in range(6):
    x = torch.randn(8)
    if step % 2:
        x = x.double()
    normalise(x)  # hazard: TT211
