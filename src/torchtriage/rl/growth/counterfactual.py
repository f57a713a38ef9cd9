"""The worth of each slot (contribution, interaction, Shapley value), from the accuracies of all subsets of slots."""

from math import factorial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchtriage.rl.growth.env_state import ParallelEnvState
from torchtriage.rl.growth.subsets import check_num_slots, pairs, subset_number, subset_table

# N environments, S slots, L pairs, C subsets (2 ** S), E effects (S + L + S).


class Effects(NamedTuple):
    """The measured accuracies and the effects derived from them."""

    accuracy_NC: Tensor  # by the subset's number
    contribution_NS: Tensor  # f(all) - f(all but s)
    interaction_NL: Tensor  # f(ij) - f(i) - f(j) + f(none), by pair number
    # The mean of f(with s) - f(without s) over all orders of the slots; the values sum to f(all) - f(none).
    shapley_NS: Tensor


class Counterfactual(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """Computes all effects in one matrix product: each is a fixed weighting of the accuracies of all subsets."""

    weight_CE: Tensor

    def __init__(self, num_slots: int, *, device: Any = None, dtype: Any = torch.float32) -> None:
        super().__init__()
        check_num_slots(num_slots)
        self.num_slots = num_slots
        weights = [contribution_weights(num_slots), interaction_weights(num_slots), shapley_weights(num_slots)]
        self.sizes = [weight.shape[1] for weight in weights]
        self.register_buffer("weight_CE", torch.cat(weights, 1).to(device=device, dtype=dtype), persistent=False)

    def forward(self, state: ParallelEnvState) -> Effects:
        """Read the counters of this epoch from the environments."""
        return self.effects(state.accuracies())

    def effects(self, accuracy_NC: Tensor) -> Effects:
        return Effects(accuracy_NC, *(accuracy_NC @ self.weight_CE).split(self.sizes, 1))


def contribution_weights(num_slots: int) -> Tensor:
    weight_CS = torch.zeros(1 << num_slots, num_slots, dtype=torch.float64)
    everything = (1 << num_slots) - 1
    for slot in range(num_slots):
        weight_CS[everything, slot] = 1
        weight_CS[everything - subset_number(slot), slot] = -1
    return weight_CS


def interaction_weights(num_slots: int) -> Tensor:
    numbers = pairs(num_slots)
    weight_CL = torch.zeros(1 << num_slots, len(numbers), dtype=torch.float64)
    for place, (i, j) in enumerate(numbers):
        weight_CL[subset_number(i, j), place] = weight_CL[0, place] = 1
        weight_CL[subset_number(i), place] = weight_CL[subset_number(j), place] = -1
    return weight_CL


def shapley_weights(num_slots: int) -> Tensor:
    """A subset has a positive weight for a slot in it: the share of orders in which the slot comes last in the subset.

    Its weight for another slot is negative: the share of orders in which that slot comes next after the subset.
    """
    on_CS = subset_table(num_slots)
    weight_CS = torch.zeros(1 << num_slots, num_slots, dtype=torch.float64)
    for subset, size in enumerate(on_CS.sum(1).tolist()):
        for slot in range(num_slots):
            on = bool(on_CS[subset, slot])
            before = size - on
            share = factorial(before) * factorial(num_slots - before - 1) / factorial(num_slots)
            weight_CS[subset, slot] = share if on else -share
    return weight_CS
