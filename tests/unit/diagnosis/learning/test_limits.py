"""The limits of the learning rules: defaults, presets, changes by name, and those stored in a recording."""

import dataclasses
import re
from pathlib import Path

import pytest

from tests.unit.diagnosis.learning.samples import a_training, findings_of
from tests.unit.samples import a_process
from torchtriage.diagnosis.learning import limits as learning_limits
from torchtriage.diagnosis.learning.limits import DEFAULT, SAGEMAKER, LearningLimits, limits_for, limits_from


def test_a_report_uses_the_limits_that_the_run_was_watched_with() -> None:
    assert findings_of(a_training(ppo__kl=[0.01, 0.6], facts={"learning_limits": {"kl_extreme": 1.0}})) == {}


@pytest.mark.parametrize("recorded", [
    None, "odd", {"no_such_limit": 3}, {"kl_extreme": "high"}, {"window": 1}, {"window": 2.5}, {"window": True},
])
def test_recorded_limits_that_make_no_sense_are_ignored(recorded: object) -> None:
    assert limits_from(a_process(learning_limits=recorded).learning.learning_limits) == DEFAULT


def test_changed_limits_survive_the_recording() -> None:
    limits = limits_for(kl_extreme=1.0, window=30)
    assert limits.changed() == {"kl_extreme": 1.0, "window": 30}
    assert limits_from(limits.changed()) == limits


def test_a_wrong_name_or_preset_is_refused_with_the_existing_ones() -> None:
    with pytest.raises(TypeError, match="no limit named 'kl_extrem'; did you mean 'kl_extreme'"):
        limits_for(kl_extrem=1.0)
    with pytest.raises(ValueError, match="one of default, sagemaker, got 'strict'"):
        limits_for("strict")


@pytest.mark.parametrize("name", [
    "window", "clipped_window", "early_stop_window", "loss_block", "loss_start", "warmup",
])
def test_a_window_has_at_least_two_observations(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 2 observations, got 1"):
        limits_for(**{name: 1})
    assert getattr(limits_for(**{name: 2}), name) == 2


def test_the_sagemaker_preset_has_the_numbers_of_sagemaker_debugger() -> None:
    assert LearningLimits(
        vanishing_norm=1e-7, vanishing_share=0.0, vanishing_patience=1, zero_patience=1, update_ratio_min=1e-8,
        update_ratio_max=10.0, update_large_patience=1, update_small_patience=1, unchanged_patience=3,
        unchanged_rtol=1e-5, loss_start=2, loss_block=10, loss_blocks=1, loss_min_gain=0.0,
    ) == SAGEMAKER
    growing = [2.0 + 1e-6 * step for step in range(9)]
    facts = {"learning_limits": SAGEMAKER.changed()}
    training = a_training(grad_norm__a=[1.0] * 9, weight_norm__a=growing, facts=facts)
    assert list(findings_of(training)) == ["TT416"]


def test_every_limit_is_read_by_a_rule() -> None:
    folder = Path(learning_limits.__file__).parent / "rules"
    rules = "".join(path.read_text() for path in folder.glob("*.py"))
    names = [field.name for field in dataclasses.fields(LearningLimits)]
    assert [name for name in names if not re.search(rf"\blimits\.{name}\b", rules)] == []
