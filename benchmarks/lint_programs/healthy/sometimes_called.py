"""Two functions, each with one kind of argument."""

import torch


@torch.compile(backend="eager")
def with_mask(x, mask):
    return x.masked_fill(mask, 0.0).sum()


@torch.compile(backend="eager")
def without_mask(x):
    return x.sum()


for step in range(4):
    x = torch.randn(5)
    mask = torch.arange(5) > 2 if step % 2 else None
    if mask is not None:
        with_mask(x, mask)
    else:
        without_mask(x)
