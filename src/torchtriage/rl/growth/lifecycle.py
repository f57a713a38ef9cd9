"""The life cycle of a seed in a slot under the actions of all environments at once."""

from typing import NamedTuple

import torch
from torch import Tensor

# N environments, S slots.
EMPTY, TRAINING, BLENDING, HOLDING, FIXED = range(5)
STAGES = ("empty", "training", "blending", "holding", "fixed")
BLEND_STEPS = 3  # from alpha 0 to 1 once a seed is advanced

WAIT = 0
GERMINATE, ADVANCE, PRUNE, FIX = range(4)  # kinds of actions; each has one action per slot


def action_number(kind: int, slot: int, num_slots: int) -> int:
    """The number of an action: 0 waits; then come germinate, advance, prune and fix, each for every slot."""
    return 1 + kind * num_slots + slot


def num_actions(num_slots: int) -> int:
    return action_number(FIX, num_slots - 1, num_slots) + 1


class Slots(NamedTuple):
    """The stage of every seed in its life cycle."""

    stage_NS: Tensor  # int64
    alpha_NS: Tensor  # float32: the share of the seed's output that the host gets
    age_NS: Tensor  # float32: steps since it was germinated


def step(slots: Slots, action_N: Tensor) -> tuple[Slots, Tensor]:
    """The slots after an action, and the seeds that it germinated.

    germinate: empty -> training. advance: training -> blending, in which alpha rises by itself until the seed is
    holding at 1. fix: holding -> fixed, permanently. prune: training, blending or holding -> empty. An action that is
    not possible in the stage of its slot is a wait.
    """
    stage_NS, alpha_NS, age_NS = slots
    num_slots = stage_NS.shape[1]
    kind_N1 = torch.div(action_N - 1, num_slots, rounding_mode="floor").unsqueeze(1)
    here_NS = ((action_N - 1) % num_slots).unsqueeze(1) == torch.arange(num_slots, device=stage_NS.device)
    germinated_NS = here_NS & (kind_N1 == GERMINATE) & (stage_NS == EMPTY)
    advanced_NS = here_NS & (kind_N1 == ADVANCE) & (stage_NS == TRAINING)
    pruned_NS = here_NS & (kind_N1 == PRUNE) & (stage_NS > EMPTY) & (stage_NS < FIXED)
    fixed_NS = here_NS & (kind_N1 == FIX) & (stage_NS == HOLDING)
    stage_NS = torch.where(germinated_NS, TRAINING, torch.where(advanced_NS, BLENDING, stage_NS))
    stage_NS = torch.where(pruned_NS, EMPTY, torch.where(fixed_NS, FIXED, stage_NS))
    risen_NS = (alpha_NS + 1 / BLEND_STEPS).clamp(max=1)
    alpha_NS = torch.where(pruned_NS, 0.0, torch.where(stage_NS == BLENDING, risen_NS, alpha_NS))
    full_NS = (stage_NS == BLENDING) & (alpha_NS > 1 - 0.5 / BLEND_STEPS)  # thirds do not add up to 1 in binary
    stage_NS = torch.where(full_NS, HOLDING, stage_NS)
    alpha_NS = torch.where(full_NS, 1.0, alpha_NS)
    age_NS = torch.where((stage_NS == EMPTY) | germinated_NS, 0.0, age_NS + 1)
    return Slots(stage_NS, alpha_NS, age_NS), germinated_NS


def learns(stage_NS: Tensor) -> Tensor:
    """A seed learns from germination until it is fixed or pruned."""
    return (stage_NS > EMPTY) & (stage_NS < FIXED)
