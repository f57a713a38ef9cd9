"""The effect of each action on its seed, and on no other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.rl.growth.lifecycle import (
    ADVANCE,
    BLEND_STEPS,
    BLENDING,
    EMPTY,
    FIX,
    FIXED,
    GERMINATE,
    HOLDING,
    PRUNE,
    STAGES,
    TRAINING,
    WAIT,
    Slots,
    action_number,
    num_actions,
    step,
)


def slots(*stages: int, alpha: float | None = None) -> Slots:
    """One environment; alpha as it is after the stage began, unless given."""
    stage_NS = torch.tensor([stages])
    alpha_NS = torch.where(stage_NS >= HOLDING, 1.0, 0.0) if alpha is None else torch.full(stage_NS.shape, alpha)
    return Slots(stage_NS, alpha_NS, torch.zeros(stage_NS.shape))


def after(before: Slots, kind: int, slot: int) -> Slots:
    return step(before, torch.tensor([action_number(kind, slot, before.stage_NS.shape[1])]))[0]


@pytest.mark.parametrize(
    ("kind", "stage", "becomes"),
    [
        (GERMINATE, EMPTY, TRAINING),
        (ADVANCE, TRAINING, BLENDING),
        (FIX, HOLDING, FIXED),
        (PRUNE, TRAINING, EMPTY),
        (PRUNE, HOLDING, EMPTY),
    ],
)
def test_an_action_moves_its_slot_and_no_other(kind: int, stage: int, becomes: int) -> None:
    found = after(slots(stage, stage, stage), kind, 1)
    assert found.stage_NS.tolist() == [[stage, becomes, stage]]


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        (GERMINATE, TRAINING),
        (GERMINATE, FIXED),
        (ADVANCE, EMPTY),
        (ADVANCE, HOLDING),
        (FIX, TRAINING),
        (FIX, EMPTY),
        (PRUNE, FIXED),
        (PRUNE, EMPTY),
    ],
)
def test_an_impossible_action_is_a_wait(kind: int, stage: int) -> None:
    before = slots(stage, stage, stage)
    waited, _ = step(before, torch.tensor([WAIT]))
    for found, expected in zip(after(before, kind, 2), waited, strict=True):
        assert torch.equal(found, expected)


def test_blending_continues_by_itself_until_the_seed_is_holding() -> None:
    now = after(slots(TRAINING, EMPTY, EMPTY), ADVANCE, 0)
    alphas = [now.alpha_NS[0, 0].item()]
    while now.stage_NS[0, 0] == BLENDING:
        now, _ = step(now, torch.tensor([WAIT]))
        alphas.append(now.alpha_NS[0, 0].item())
    assert alphas == pytest.approx([(k + 1) / BLEND_STEPS for k in range(BLEND_STEPS)])
    assert (now.stage_NS[0, 0].item(), alphas[-1]) == (HOLDING, 1.0)


def test_pruning_removes_the_seed_at_once() -> None:
    found = after(slots(BLENDING, HOLDING, FIXED, alpha=0.5), PRUNE, 0)
    assert (found.stage_NS[0, 0].item(), found.alpha_NS[0, 0].item(), found.age_NS[0, 0].item()) == (EMPTY, 0.0, 0.0)


@given(st.lists(st.integers(0, num_actions(4) - 1), max_size=60))
def test_each_stage_has_its_alpha_and_fixed_is_permanent(actions: list[int]) -> None:
    now, fixed = slots(EMPTY, EMPTY, EMPTY, EMPTY), set()
    for action in actions:
        now, germinated_NS = step(now, torch.tensor([action]))
        for slot, (stage, alpha, age) in enumerate(zip(*(value[0].tolist() for value in now), strict=True)):
            assert 0 <= stage < len(STAGES)
            assert {EMPTY: alpha == 0, TRAINING: alpha == 0, BLENDING: 0 < alpha < 1}.get(stage, alpha == 1)
            assert stage == FIXED or slot not in fixed
            assert not germinated_NS[0, slot] or (stage, age) == (TRAINING, 0)
            fixed |= {slot} if stage == FIXED else set()
