"""Logging behind torch.compiler.disable under another name, first in the function."""

import torch
from torch.compiler import disable as eager_only

lines = []


@eager_only
def note(x):
    lines.append(x.mean().item())


def step(x):
    return x * 2


fast = torch.compile(step, backend="eager")
for _ in range(3):
    x = torch.ones(3)
    note(x)
    fast(x)
