"""An int argument that becomes dynamic."""

import torch


@torch.compile(backend="eager")
def scale(x, n):
    return x * n + n


for n in range(2, 8):
    scale(torch.ones(3), n)
