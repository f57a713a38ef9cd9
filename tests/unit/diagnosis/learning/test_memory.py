"""The memory of the learning rules: streaks, and states that an earlier version saved."""

import pytest

from torchtriage.diagnosis.learning.memory import Memory, Streak
from torchtriage.diagnosis.learning.watch import LearningWatch

# Written by an earlier version; checkpoints of users hold such states.
SAVED = {
    "version": 1,
    "windows": {"loss": [50, [1.0, 0.9]], "scaler": [None, [3, 0.0]]},
    "streaks": {"collapse:ppo/entropy": [2, 0]},
    "numbers": {"num_losses": 2},
    "weights": {"fc.weight": 2.5},
    "tensors": {"fc.weight": [[4, 0], [0, 0], [0, 0], [0, 0], [0, 0]]},
}


def test_a_saved_state_is_restored_exactly() -> None:
    memory = Memory()
    memory.load_state_dict(SAVED)
    assert memory.state_dict() == SAVED


def test_streaks_of_a_saved_state_continue() -> None:
    watch = LearningWatch()
    watch.memory.load_state_dict(SAVED)
    [zero] = watch.observe_tensor("fc.weight", {"grad_norm": 0.0}, step=5)
    [collapse] = watch.observe({"ppo/entropy": 0.05}, step=5)
    assert [(breach.code, breach.step) for breach in (zero, collapse)] == [("TT406", 5), ("TT606", 5)]


def test_a_tensor_that_is_healthy_again_is_forgotten() -> None:
    watch = LearningWatch()
    watch.memory.load_state_dict(SAVED)
    assert watch.observe_tensor("fc.weight", {"grad_norm": 1.0, "weight_norm": 2.6}) == []
    assert watch.memory.state_dict()["tensors"] == {}


@pytest.mark.parametrize(("values", "is_active"), [([1, 1], False), ([1, 1, 1], True), ([1, 1, 0, 1], False)])
def test_a_streak_is_active_once_it_is_long_enough(values: list[int], is_active: bool) -> None:
    streak = Streak()
    for value in values:
        streak = streak.after(beyond=bool(value), patience=3)
    assert streak.is_active is is_active


def test_an_active_streak_ends_only_when_it_is_cleared() -> None:
    streak = Streak(3, True).after(beyond=False, patience=3, cleared=False)
    assert streak == Streak(0, True)
    assert streak.after(beyond=False, patience=3, cleared=True) == Streak(0, False)
