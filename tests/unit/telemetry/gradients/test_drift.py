"""Drift from the moving average: computed before the update, finite for every finite input, resumed exactly."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.diagnosis.learning.limits import LearningLimits
from torchtriage.telemetry.gradients.drift import MAX_DRIFT, GradientEMATracker

values = st.floats(0, allow_nan=False, allow_infinity=False)


def test_the_first_sample_is_the_average_and_has_not_drifted() -> None:
    seen = GradientEMATracker().update(3.0, 0.5)
    assert (seen.norm_drift, seen.health_drift, seen.ema_norm, seen.ema_health) == (0.0, 0.0, 3.0, 0.5)


def test_drift_is_computed_before_the_average_moves() -> None:
    tracker = GradientEMATracker(momentum=0.9)
    tracker.update(2.0, 1.0)
    seen = tracker.update(3.0, 0.4)
    assert (seen.norm_drift, seen.health_drift) == pytest.approx((0.5, 0.6))
    assert (seen.ema_norm, seen.ema_health) == pytest.approx((0.9 * 2.0 + 0.1 * 3.0, 0.9 * 1.0 + 0.1 * 0.4))
    assert tracker.update_count == 2


def test_near_zero_the_floor_keeps_noise_small_and_a_jump_bounded() -> None:
    tracker = GradientEMATracker()
    tracker.update(0.0, 0.0)
    assert tracker.update(1e-12, 1e-12).norm_drift < 1e-3
    assert tracker.update(1.0, 1.0).norm_drift == MAX_DRIFT
    assert tracker.update(1e308, 1.0).norm_drift == MAX_DRIFT


@given(st.lists(st.tuples(values, values), min_size=1, max_size=20), st.floats(0, 0.999))
def test_drift_is_finite_for_every_finite_input(samples: list[tuple[float, float]], momentum: float) -> None:
    tracker = GradientEMATracker(momentum=momentum)
    for norm, health in samples:
        seen = tracker.update(norm, health)
        assert all(
            math.isfinite(x) and x >= 0 for x in (seen.norm_drift, seen.health_drift, seen.ema_norm, seen.ema_health)
        )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("where", ["norm", "health"])
def test_non_finite_value_is_refused_and_changes_nothing(bad: float, where: str) -> None:
    tracker = GradientEMATracker()
    tracker.update(1.0, 1.0)
    before = tracker.state_dict()
    with pytest.raises(
        ValueError, match=f"{where} must be finite and not negative, got {bad}; report it, and leave this update out"
    ):
        tracker.update(**{"norm": 2.0, "health": 0.5} | {where: bad})
    assert tracker.state_dict() == before


def test_saved_tracker_continues_bit_for_bit() -> None:
    samples = [(1.0 + 0.1 * i, 1.0 / (1 + i)) for i in range(20)]
    straight, first, second = GradientEMATracker(0.9, 1e-6), GradientEMATracker(0.9, 1e-6), GradientEMATracker()
    uninterrupted = [straight.update(*sample) for sample in samples]
    parts = [first.update(*sample) for sample in samples[:7]]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    parts += [second.update(*sample) for sample in samples[7:]]
    assert parts == uninterrupted
    assert second.state_dict() == straight.state_dict()


def test_the_state_holds_everything() -> None:
    assert GradientEMATracker().state_dict() == {
        "version": 1,
        "ema_norm": 0.0,
        "ema_health": 0.0,
        "initialized": False,
        "update_count": 0,
        "momentum": 0.99,
        "epsilon": 1e-8,
    }


@pytest.mark.parametrize(("change", "words"), [
    ({"version": 0}, "expects a state of version 1, found 0; take it from GradientEMATracker.state_dict"),
    ({"version": None}, "expects a state of version 1, found None"),
    ({"ema_norm": "3"}, "expects ema_norm to be float or int, found '3'"),
    ({"ema_norm": math.nan}, "ema_norm must be finite"),
    ({"update_count": True}, "expects update_count to be int, found True"),
    ({"momentum": 1.5}, r"momentum must be in \[0, 1\)"),
])
def test_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict[str, Any], words: str) -> None:
    tracker = GradientEMATracker()
    tracker.update(1.0, 1.0)
    before = tracker.state_dict()
    with pytest.raises(ValueError, match=words):
        tracker.load_state_dict(GradientEMATracker().state_dict() | change)
    assert tracker.state_dict() == before


def test_missing_keys_are_named() -> None:
    with pytest.raises(ValueError, match="missing: ema_health, initialized"):
        GradientEMATracker().load_state_dict(
            {"version": 1, "ema_norm": 1.0, "update_count": 1, "momentum": 0.9, "epsilon": 1e-8}
        )


def test_defaults_equal_those_of_the_rules() -> None:
    assert (GradientEMATracker().momentum, GradientEMATracker().epsilon) == (
        LearningLimits().drift_momentum,
        LearningLimits().drift_floor,
    )
