"""Pair accumulators in a dict with tuple keys: one recompile for every key that is read; a flat tensor has none."""

import sys

import torch

CURED = "--cured" in sys.argv
NUM_SLOTS = 4
pairs = [(i, j) for i in range(NUM_SLOTS) for j in range(i)]


@torch.compile(backend="eager")
def add_to_dict(accums: dict, pair: tuple, x: torch.Tensor) -> torch.Tensor:
    return accums[pair] + x.sum()


@torch.compile(backend="eager")
def add_to_flat(accums: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return accums.index_add(0, index, x.sum()[None])


x = torch.ones(3)
if CURED:
    flat = torch.zeros(NUM_SLOTS * NUM_SLOTS)
    for i, j in pairs:
        flat = add_to_flat(flat, torch.tensor([i * NUM_SLOTS + j]), x)
    print("total", flat.sum().item())
else:
    by_pair = {pair: torch.zeros(()) for pair in pairs}
    for pair in pairs:
        by_pair[pair] = add_to_dict(by_pair, pair, x)
    print("total", sum(by_pair.values()).item())
