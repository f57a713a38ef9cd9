"""Levels, intervals and escalation decide what is collected; every setting has an effect."""

import dataclasses
import json
from typing import Any

import pytest

from torchtriage.telemetry.config import CATEGORIES, TelemetryConfig, TelemetryLevel
from torchtriage.text import counted

OFF, MINIMAL, NORMAL, DEBUG = TelemetryLevel


def advance(config: TelemetryConfig, updates: int = 1, own: float = 0.0) -> None:
    for _ in range(updates):
        config.advance(own_seconds=own, run_seconds=1.0)


def collected(config: TelemetryConfig) -> set[str]:
    return {category for category in CATEGORIES if config.should_collect(category)}


def test_levels_are_ordered_and_normal_is_the_default() -> None:
    assert [level.value for level in (OFF, MINIMAL, NORMAL, DEBUG)] == [0, 1, 2, 3]
    assert TelemetryConfig().level is NORMAL


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (OFF, set()),
        (MINIMAL, {"metrics", "gradients", "clipped_gradients"}),
        (NORMAL, {"metrics", "gradients", "clipped_gradients", "group_gradients", "weights", "updates"}),
        (
            DEBUG,
            {
                "metrics",
                "gradients",
                "clipped_gradients",
                "group_gradients",
                "weights",
                "updates",
                "per_layer_gradients",
            },
        ),
    ],
)
def test_level_collects_its_categories_and_those_below(level: TelemetryLevel, expected: set[str]) -> None:
    assert collected(TelemetryConfig(level=level)) == expected


@pytest.mark.parametrize(("level", "interval"), [(MINIMAL, 100), (NORMAL, 20), (DEBUG, 1)])
def test_each_level_has_its_interval(level: TelemetryLevel, interval: int) -> None:
    config = TelemetryConfig(level=level)
    updates = []
    for update in range(201):
        if config.should_collect("gradients"):
            updates.append(update)
        advance(config)
    assert updates == list(range(0, 201, interval))


def test_an_unknown_category_raises_even_when_off() -> None:
    with pytest.raises(ValueError, match=r"category must be one of metrics, gradients, .*, got 'grads'"):
        TelemetryConfig(level=OFF).should_collect("grads")


def test_escalation_switches_to_debug_for_five_updates() -> None:
    config = TelemetryConfig()
    advance(config, 3)      # update 3: nothing is due
    assert collected(config) == set()
    assert config.escalate()
    seen = []
    for _ in range(10):
        advance(config)
        seen.append(config.effective_level is DEBUG and config.should_collect("per_layer_gradients"))
    assert seen == [True] * 5 + [False] * 5
    assert config.level is NORMAL


def test_escalation_collects_every_update_whatever_the_debug_interval() -> None:
    config = TelemetryConfig(debug_interval=50)
    config.escalate()
    advance(config)
    assert {"per_layer_gradients", "weights"} <= collected(config)


def test_off_is_never_overridden() -> None:
    config = TelemetryConfig(level=OFF)
    assert config.why_not_escalate() == "telemetry is off"
    assert not config.escalate()
    running = TelemetryConfig()
    running.escalate()
    running.level = OFF
    assert running.effective_level is OFF
    assert collected(running) == set()


def test_cooldown_follows_an_escalation() -> None:
    config = TelemetryConfig(escalation_updates=2, escalation_cooldown=4)
    assert config.escalate()
    assert config.why_not_escalate() == "the level is DEBUG already"
    outcomes = []
    for _ in range(8):
        advance(config)
        outcomes.append(config.why_not_escalate())
    assert outcomes == [
        *["the level is DEBUG already"] * 2,
        *(f"an escalation ended {counted(n, 'update')} ago, the cooldown is 4" for n in range(4)), None, None,
    ]
    assert config.escalate()
    assert config.num_escalations == 2


def test_above_the_budget_escalations_end_and_none_starts() -> None:
    config = TelemetryConfig(overhead_budget=0.01)
    advance(config, own=0.02)
    assert config.why_not_escalate() == "telemetry has taken 2.00% of the run, the budget is 1.00%"
    advance(config, own=0.0)
    assert config.escalate()    # 1 % is not above
    advance(config, own=0.5)
    assert config.effective_level is NORMAL
    advance(config, updates=200)
    assert config.escalate()


def test_overhead_is_zero_before_anything_is_measured() -> None:
    config = TelemetryConfig(overhead_budget=0.0)
    config.advance()
    assert config.overhead == 0.0
    assert config.escalate()


# A field that changes nothing is dead: one other value a field, and a run in which it must show.
OTHER_VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "level": (MINIMAL, {}),
    "minimal_interval": (7, {"level": MINIMAL}),
    "normal_interval": (7, {}),
    "debug_interval": (3, {"level": DEBUG}),
    "per_layer_gradients": (False, {}),
    "activation_monitoring": (True, {}),
    "weight_tracking": (False, {}),
    "weight_track_interval": (10, {"normal_interval": 10, "auto_escalate": False}),
    "auto_escalate": (False, {}),
    "escalation_updates": (9, {"overhead_budget": 1.0}),
    "escalation_cooldown": (3, {"overhead_budget": 1.0}),
    "overhead_budget": (0.5, {}),
}


def behaviour(**settings: Any) -> list[Any]:
    """Over 60 updates, in which something is wrong from update 12 on, and each collection of layers costs a tenth of
    an update.
    """
    config, seen = TelemetryConfig(**settings), []
    for update in range(60):
        if update >= 12:
            config.escalate()
        seen.append((config.effective_level, sorted(collected(config))))
        advance(config, own=0.1 if config.should_collect("per_layer_gradients") else 0.001)
    return seen


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TelemetryConfig) if field.init])
def test_every_field_changes_what_happens(name: str) -> None:
    other, rest = OTHER_VALUES[name]
    assert behaviour(**rest) != behaviour(**rest | {name: other})


def test_saved_config_continues_from_its_state() -> None:
    first, second = TelemetryConfig(), TelemetryConfig()
    advance(first, 14, own=0.001)
    first.escalate()
    advance(first, 2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(80):
        assert (collected(first), first.why_not_escalate()) == (collected(second), second.why_not_escalate())
        advance(first, own=0.001)
        advance(second, own=0.001)
    assert first.state_dict() == second.state_dict()


@pytest.mark.parametrize(("change", "words"), [
    ({"version": 2}, "TelemetryConfig expects a state of version 1, found 2; take it from TelemetryConfig.state_dict"),
    ({"update_count": 1.5}, "expects update_count to be int, found 1.5"),
])
def test_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict[str, Any], words: str) -> None:
    config = TelemetryConfig()
    advance(config, 3)
    before = config.state_dict()
    with pytest.raises(ValueError, match=words):
        config.load_state_dict(before | change)
    assert config.state_dict() == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"normal_interval": 0}, "normal_interval must be a number of updates of at least 1, got 0"),
        ({"debug_interval": True}, "debug_interval must be a number of updates of at least 1, got True"),
        ({"escalation_cooldown": -1}, "escalation_cooldown must be a number of updates of at least 0, got -1"),
        (
            {"overhead_budget": 5},
            "overhead_budget must be a share of the run's time from 0 to 1, got 5; 0.01 is one percent",
        ),
        ({"level": 9}, "9 is not a valid TelemetryLevel"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TelemetryConfig(**settings)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_cost_that_is_not_a_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="own_seconds must be a finite number of seconds"):
        TelemetryConfig().advance(own_seconds=bad)
