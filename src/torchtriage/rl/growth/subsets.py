"""Numbers for sets of slots: bit s of a subset's number is 1 if slot s is on; pairs i < j are numbered in order."""

from itertools import combinations

import torch
from torch import Tensor

# C subsets, S slots.
NUM_SLOTS = (3, 4)  # with these, none, each alone, pairs, each off and all on are all subsets


def check_num_slots(num_slots: int) -> None:
    if num_slots not in NUM_SLOTS:
        raise ValueError(
            f"num_slots must be 3 or 4, got {num_slots}; with more, pairs and single slots are not all subsets"
        )


def subset_number(*slots: int) -> int:
    """The number of the subset in which only these slots are on."""
    return sum(1 << slot for slot in slots)


def pairs(num_slots: int) -> list[tuple[int, int]]:
    """Every i < j, in the order of the pair numbers."""
    return list(combinations(range(num_slots), 2))


def pair_number(i: int, j: int, num_slots: int) -> int:
    """The index of a pair in a flat tensor of all pairs."""
    if not 0 <= i < j < num_slots:
        raise ValueError(f"a pair has slots 0 <= i < j < {num_slots}, got {i} and {j}; give the smaller one first")
    return i * (2 * num_slots - i - 1) // 2 + (j - i - 1)


def subset_table(num_slots: int) -> Tensor:
    """Which slots are on in each subset, as booleans, by the subset's number."""
    number_C1 = torch.arange(1 << num_slots).unsqueeze(1)
    return (number_C1 >> torch.arange(num_slots) & 1).bool()
