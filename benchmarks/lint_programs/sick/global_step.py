"""A global counts steps, and the compiled code reads it."""

import torch

STEP = 0


@torch.compile(backend="eager")
def anneal(x):
    return x * (0.9 ** STEP)  # hazard: TT220


def train():
    global STEP
    for _ in range(5):
        anneal(torch.ones(3))
        STEP += 1


train()
