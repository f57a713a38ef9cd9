"""How much telemetry is collected: a level, its interval, a short escalation when something goes wrong."""

import enum
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchtriage.text import counted

STATE_VERSION = 1


class TelemetryLevel(enum.IntEnum):
    OFF = 0         # nothing
    MINIMAL = 1     # the program's own metrics, totals of gradients, and which tensors contain NaN or Inf
    NORMAL = 2      # also groups, the norm of every tensor, weights, and how much an update changes them
    DEBUG = 3       # also all statistics of every tensor, and activations


# All statistics of every gradient; otherwise small and large elements are not counted.
DETAILED = "per_layer_gradients"
RARE = "clipped_gradients"          # collected at every level, only together with statistics that change slowly

# The lowest level that collects each category.
CATEGORIES = {
    "metrics": TelemetryLevel.MINIMAL,
    "gradients": TelemetryLevel.MINIMAL,
    RARE: TelemetryLevel.MINIMAL,
    "group_gradients": TelemetryLevel.NORMAL,
    "weights": TelemetryLevel.NORMAL,
    "updates": TelemetryLevel.NORMAL,
    DETAILED: TelemetryLevel.DEBUG,
    "activations": TelemetryLevel.DEBUG,
}


@dataclass(slots=True, kw_only=True)
class TelemetryConfig:
    """The settings that decide which update collects which categories, and their state.

    An update is whatever `advance` is called after: an optimizer step, or a PPO update.
    """

    level: TelemetryLevel = TelemetryLevel.NORMAL
    minimal_interval: int = 100             # updates from one sample to the next at this level
    normal_interval: int = 20               # at 10, samples took 0.4 % of a small transformer's steps; the aim is 0.3 %
    debug_interval: int = 1
    per_layer_gradients: bool = True        # this and the next two: whether a category is collected at all
    activation_monitoring: bool = False     # forward hooks slow the model down, so only on request
    weight_tracking: bool = True            # weights and updates
    # Minimum distance of samples with weights, their change and clipped gradients.
    weight_track_interval: int = 60
    auto_escalate: bool = True
    escalation_updates: int = 5             # how long DEBUG lasts when a rule fires
    escalation_cooldown: int = 50           # updates from the end of an escalation to the next one
    overhead_budget: float = 0.01           # share of the run's time; escalation stops above it

    update_count: int = field(default=0, init=False)
    escalated_until: int = field(default=0, init=False)     # the first update that is no longer escalated
    num_escalations: int = field(default=0, init=False)
    own_seconds: float = field(default=0.0, init=False)
    run_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.level = TelemetryLevel(self.level)
        intervals = (
            "minimal_interval", "normal_interval", "debug_interval", "weight_track_interval", "escalation_updates",
        )
        for name in intervals:
            _check(name, getattr(self, name), 1)
        _check("escalation_cooldown", self.escalation_cooldown, 0)
        if not 0 <= self.overhead_budget <= 1:
            raise ValueError(
                "overhead_budget must be a share of the run's time from 0 to 1, "
                f"got {self.overhead_budget}; 0.01 is one percent"
            )

    @property
    def is_escalated(self) -> bool:
        return self.update_count < self.escalated_until and self.level is not TelemetryLevel.OFF

    @property
    def effective_level(self) -> TelemetryLevel:
        return TelemetryLevel.DEBUG if self.is_escalated else self.level

    @property
    def interval(self) -> int:
        """Updates from one sample to the next; 1 while escalated, or a short escalation could fall between two
        samples.
        """
        if self.is_escalated:
            return 1
        if self.level is TelemetryLevel.NORMAL:
            return self.normal_interval
        return self.debug_interval if self.level is TelemetryLevel.DEBUG else self.minimal_interval

    @property
    def overhead(self) -> float:
        """Telemetry's own share of the run's time so far; 0 before anything was measured."""
        return self.own_seconds / self.run_seconds if self.run_seconds > 0 else 0.0

    def collected(self, since_weights: float | None = None) -> frozenset[str]:
        """The categories to collect at this update, whatever the interval.

        `since_weights`: updates since weights were last collected, for callers that do not sample at fixed updates.
        """

        if since_weights is None:
            since_weights = 0 if self.update_count % self.weight_track_interval else math.inf
        is_rare_due = self.is_escalated or since_weights >= self.weight_track_interval
        return _categories(
            self.effective_level, is_rare_due, self.weight_tracking, self.per_layer_gradients,
            self.activation_monitoring,
        )

    def should_collect(self, category: str) -> bool:
        """Whether this update collects a category of CATEGORIES."""
        if category not in CATEGORIES:
            raise ValueError(f"category must be one of {', '.join(CATEGORIES)}, got {category!r}")
        return self.update_count % self.interval == 0 and category in self.collected()

    def why_not_escalate(self) -> str | None:
        """The reason why telemetry cannot escalate now; None if it can."""
        cooldown_end = self.escalated_until + self.escalation_cooldown
        if self.level is TelemetryLevel.OFF:
            return "telemetry is off"
        if not self.auto_escalate:
            return "auto_escalate is off"
        if self.effective_level is TelemetryLevel.DEBUG:
            return "the level is DEBUG already"
        if self.num_escalations and self.update_count < cooldown_end:
            ago = counted(self.update_count - self.escalated_until, "update")
            return f"an escalation ended {ago} ago, the cooldown is {self.escalation_cooldown}"
        if self.overhead > self.overhead_budget:
            return f"telemetry has taken {self.overhead:.2%} of the run, the budget is {self.overhead_budget:.2%}"
        return None

    def escalate(self) -> bool:
        """Switch to DEBUG for the rest of this update and the next `escalation_updates`.

        Returns False if that is not possible now; see `why_not_escalate`.
        """
        if self.why_not_escalate() is not None:
            return False
        self.escalated_until = self.update_count + 1 + self.escalation_updates
        self.num_escalations += 1
        return True

    def advance(self, own_seconds: float = 0.0, run_seconds: float = 0.0) -> None:
        """Count an update that took `run_seconds`, of which telemetry took `own_seconds`.

        An escalation ends early once the budget is spent.
        """
        for name, seconds in (("own_seconds", own_seconds), ("run_seconds", run_seconds)):
            if not 0 <= seconds < math.inf:
                raise ValueError(
                    f"{name} must be a finite number of seconds, got {seconds}; measure with time.perf_counter()"
                )
        self.update_count += 1
        self.spent(own_seconds, run_seconds)

    def spent(self, own_seconds: float, run_seconds: float) -> None:
        """Like `advance`, for updates that are already counted."""
        self.own_seconds += own_seconds
        self.run_seconds += run_seconds
        if self.is_escalated and self.overhead > self.overhead_budget:
            self.escalated_until = self.update_count

    def state_dict(self) -> dict[str, Any]:
        """The state without the settings, which belong to the program."""
        return {"version": STATE_VERSION, **{name: getattr(self, name) for name in _STATE}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, STATE_VERSION, _STATE)
        for name in _STATE:
            setattr(self, name, state[name])


_STATE: Mapping[str, type | tuple[type, ...]] = {
    "update_count": int, "escalated_until": int, "num_escalations": int,
    "own_seconds": (float, int), "run_seconds": (float, int),
}


@functools.cache
def _categories(
    level: TelemetryLevel, is_rare_due: bool, weights: bool, layers: bool, activations: bool,
) -> frozenset[str]:
    wanted = {
        RARE: is_rare_due, "weights": weights and is_rare_due, "updates": weights and is_rare_due,
        DETAILED: layers, "activations": activations,
    }
    return frozenset(name for name, least in CATEGORIES.items() if level >= least and wanted.get(name, True))


def _check(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a number of updates of at least {least}, got {value!r}")


def check_state(
    owner: object, state: Mapping[str, Any], version: int, expected: Mapping[str, type | tuple[type, ...]],
) -> None:
    """Raise ValueError if a state does not fit its owner.

    `expected`: the keys besides the version, with the types of their values; True and False are not numbers here.
    """
    name = type(owner).__name__
    remedy = f"take it from {name}.state_dict() of this release, or start without it"
    if not isinstance(state, Mapping):
        raise ValueError(f"{name} expects a state of version {version}, found a {type(state).__name__}; {remedy}")
    if state.get("version") != version:
        version_found = state.get("version", "none")
        raise ValueError(f"{name} expects a state of version {version}, found {version_found}; {remedy}")
    if missing := [key for key in expected if key not in state]:
        raise ValueError(
            f"{name} expects a state with {', '.join(expected)}, missing: {', '.join(missing)}; {remedy}"
        )
    for key, kind in expected.items():
        value = state[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} expects {key} to be {_type_names(kind)}, found {value!r}; {remedy}")


def _type_names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
