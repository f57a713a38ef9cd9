"""Passes a new lambda of another body in each call."""

import torch


@torch.compile(backend="eager")
def apply(x, fn):
    return fn(x) * 2


x = torch.ones(3)
for power in range(6):
    apply(x, lambda v: v.sin())  # harmless
for fn in (torch.sin, torch.cos, torch.tanh, torch.exp):
    apply(x, fn)  # hazard: TT219
