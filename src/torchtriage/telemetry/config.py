"""How much telemetry is collected, and when: a level, an interval each, and a short escalation when something goes wrong."""

import enum
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STATE_VERSION = 1


class TelemetryLevel(enum.IntEnum):
    OFF = 0         # nothing
    MINIMAL = 1     # the program's own metrics, totals of gradients, and which tensors hold NaN or Inf
    NORMAL = 2      # and groups, the norm of every tensor, weights, and how much an update changes them
    DEBUG = 3       # and all statistics of every tensor, and activations


DETAILED = "per_layer_gradients"    # all statistics of every gradient; else what is small or large need not be counted
RARE = "clipped_gradients"          # what every level takes, and only at looks that take what is slow to change

# From which level on something is collected.
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
    """What to collect at which update; an update is what `advance` is called after: an optimizer step, or a PPO update."""

    level: TelemetryLevel = TelemetryLevel.NORMAL
    minimal_interval: int = 100             # updates from one collection to the next, by the level in force
    normal_interval: int = 20               # at 10 a look took 0.4 % of the steps of a small transformer; here the aim is 0.3
    debug_interval: int = 1
    per_layer_gradients: bool = True        # these three: whether a category is collected at all
    activation_monitoring: bool = False     # forward hooks slow the model down, so only on request
    weight_tracking: bool = True            # weights and updates
    weight_track_interval: int = 60         # weights change slowly: they, updates and clipped gradients at least so many updates apart
    auto_escalate: bool = True
    escalation_updates: int = 5             # how long DEBUG lasts when a rule fires
    escalation_cooldown: int = 50           # updates after one until the next
    overhead_budget: float = 0.01           # share of the run's time above which there is no escalation

    update_count: int = field(default=0, init=False)
    escalated_until: int = field(default=0, init=False)     # the first update that is no longer escalated
    num_escalations: int = field(default=0, init=False)
    own_seconds: float = field(default=0.0, init=False)
    run_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.level = TelemetryLevel(self.level)
        for name in ("minimal_interval", "normal_interval", "debug_interval", "weight_track_interval", "escalation_updates"):
            _check(name, getattr(self, name), 1)
        _check("escalation_cooldown", self.escalation_cooldown, 0)
        if not 0 <= self.overhead_budget <= 1:
            raise ValueError(f"overhead_budget is a share of the run's time from 0 to 1, got {self.overhead_budget}; 0.01 is one percent")

    @property
    def is_escalated(self) -> bool:
        return self.update_count < self.escalated_until and self.level is not TelemetryLevel.OFF

    @property
    def effective_level(self) -> TelemetryLevel:
        return TelemetryLevel.DEBUG if self.is_escalated else self.level

    @property
    def interval(self) -> int:
        """Updates from one collection to the next; 1 while escalated, or a short escalation could pass between two collections."""
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
        """The categories that a look at this update takes, whatever the interval.

        `since_weights`: updates since weights were last taken, for who does not look at fixed updates.
        """
        if since_weights is None:
            since_weights = 0 if self.update_count % self.weight_track_interval else math.inf
        is_escalated = self.is_escalated
        return _categories(
            TelemetryLevel.DEBUG if is_escalated else self.level, is_escalated or since_weights >= self.weight_track_interval,
            self.weight_tracking, self.per_layer_gradients, self.activation_monitoring,
        )

    def should_collect(self, category: str) -> bool:
        """Whether this update collects a category of CATEGORIES."""
        if category not in CATEGORIES:
            raise ValueError(f"category must be one of {', '.join(CATEGORIES)}, got {category!r}")
        return self.update_count % self.interval == 0 and category in self.collected()

    def why_not_escalate(self) -> str | None:
        """What speaks against an escalation now; None if nothing does."""
        rest_over = self.escalated_until + self.escalation_cooldown
        if self.level is TelemetryLevel.OFF:
            return "telemetry is off"
        if not self.auto_escalate:
            return "auto_escalate is off"
        if self.effective_level is TelemetryLevel.DEBUG:
            return "the level is DEBUG already"
        if self.num_escalations and self.update_count < rest_over:
            return f"an escalation ended {self.update_count - self.escalated_until} updates ago, the cooldown is {self.escalation_cooldown}"
        if self.overhead > self.overhead_budget:
            return f"telemetry has taken {self.overhead:.2%} of the run, the budget is {self.overhead_budget:.2%}"
        return None

    def escalate(self) -> bool:
        """Go to DEBUG for the rest of this update and the next `escalation_updates`; False if not now, see `why_not_escalate`."""
        if self.why_not_escalate() is not None:
            return False
        self.escalated_until = self.update_count + 1 + self.escalation_updates
        self.num_escalations += 1
        return True

    def advance(self, own_seconds: float = 0.0, run_seconds: float = 0.0) -> None:
        """An update is over: it took `run_seconds`, `own_seconds` of them telemetry. An escalation ends early once the budget is spent."""
        if not (0 <= own_seconds < math.inf and 0 <= run_seconds < math.inf):
            name, value = ("run_seconds", run_seconds) if 0 <= own_seconds < math.inf else ("own_seconds", own_seconds)
            raise ValueError(f"{name} must be a finite number of seconds, got {value}; measure with time.perf_counter()")
        self.update_count += 1
        self.spent(own_seconds, run_seconds)

    def spent(self, own_seconds: float, run_seconds: float) -> None:
        """As `advance`, of updates that are counted already."""
        self.own_seconds += own_seconds
        self.run_seconds += run_seconds
        if self.is_escalated and self.overhead > self.overhead_budget:
            self.escalated_until = self.update_count

    def state_dict(self) -> dict[str, Any]:
        """Where it stands; the settings are the program's, and are not part of it."""
        return {"version": STATE_VERSION, **{name: getattr(self, name) for name in _STATE}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, STATE_VERSION, _STATE)
        for name in _STATE:
            setattr(self, name, state[name])


_STATE: Mapping[str, type | tuple[type, ...]] = {
    "update_count": int, "escalated_until": int, "num_escalations": int, "own_seconds": (float, int), "run_seconds": (float, int),
}


@functools.cache
def _categories(level: TelemetryLevel, is_rare_due: bool, weights: bool, layers: bool, activations: bool) -> frozenset[str]:
    wanted = {
        RARE: is_rare_due, "weights": weights and is_rare_due, "updates": weights and is_rare_due,
        DETAILED: layers, "activations": activations,
    }
    return frozenset(name for name, least in CATEGORIES.items() if level >= least and wanted.get(name, True))


def _check(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is a number of updates from {least} on, got {value!r}")


def check_state(owner: object, state: Mapping[str, Any], version: int, expected: Mapping[str, type | tuple[type, ...]]) -> None:
    """`expected`: the keys beside the version, each with the types its value may have; True and False are no numbers here."""
    name = type(owner).__name__
    do = f"take it from {name}.state_dict() of this release, or start without it"
    if not isinstance(state, Mapping):
        raise ValueError(f"{name} expects a state of version {version}, found a {type(state).__name__}; {do}")
    if state.get("version") != version:
        raise ValueError(f"{name} expects a state of version {version}, found {state.get('version', 'none')}; {do}")
    if missing := [key for key in expected if key not in state]:
        raise ValueError(f"{name} expects a state with {', '.join(expected)}, found none of: {', '.join(missing)}; {do}")
    for key, kind in expected.items():
        value = state[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} expects {key} to be {_names(kind)}, found {value!r}; {do}")


def _names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
