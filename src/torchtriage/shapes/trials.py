"""One run of a program under one shape policy, as the statistics need it: how long its units took, and what was compiled in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

MIN_STEPS = 5       # below, a program is compared by its calls of compiled functions
STEPS = "steps"     # the name of the one lane of a program with steps


class Stretch(NamedTuple):
    """Some units in a row: more than one only where a long series was merged."""

    num_units: int
    seconds: float
    num_compiles: float


@dataclass(frozen=True, slots=True)
class Lane:
    """Units one after the other: the steps of a program, or the calls of one compiled function."""

    stretches: tuple[Stretch, ...] = ()

    @classmethod
    def of(cls, seconds: Sequence[float], compiles: Iterable[float] = repeat(0)) -> "Lane":
        """From the seconds of each unit, and the compiles that began in it."""
        return cls(tuple(Stretch(1, s, c) for s, c in zip(seconds, compiles, strict=False)))

    @property
    def num_units(self) -> int:
        return sum(s.num_units for s in self.stretches)

    def total(self, units: float) -> float:
        """Seconds of the first so many units."""
        left, seconds = units, 0.0
        for stretch in self.stretches:
            if left <= 0:
                break
            taken = min(left, stretch.num_units)
            seconds += stretch.seconds * taken / stretch.num_units
            left -= taken
        return seconds

    def rate(self, units: int) -> float:
        """Seconds a unit over the second half of the first so many, with the compiles that fell into it."""
        half = units // 2
        return (self.total(units) - self.total(half)) / (units - half)

    def compiles_late(self, units: int) -> bool:
        """Whether something was compiled in the second half of the first so many units."""
        return any(s.num_compiles for s in self._between(units // 2, units))

    def steady(self, units: int) -> tuple[int, float]:
        """How many of the first so many units had no compile in them, and their seconds; those of the second half if there are any."""
        for begin in (units // 2, 0):
            quiet = [s for s in self._between(begin, units) if not s.num_compiles]
            if quiet:
                break
        return sum(s.num_units for s in quiet), sum(s.seconds for s in quiet)

    def _between(self, begin: int, end: int) -> list[Stretch]:
        """The stretches that begin with a unit after the first `begin` and before `end`."""
        found, at = [], 0
        for stretch in self.stretches:
            if begin <= at < end:
                found.append(stretch)
            at += stretch.num_units
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of one policy in one round."""

    policy: str
    round: int
    steps: Lane | None = None                                       # None: the program shows no steps
    functions: Mapping[str, Lane] = field(default_factory=dict)     # compiled function -> its outermost calls
    sites: Mapping[str, str] = field(default_factory=dict)          # compiled function -> path:line of its torch.compile call
    num_compiles: int | None = None
    num_recompiles: int | None = None
    num_eager_calls: int = 0
    hit_limit: bool = False
    compile_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    overridden: Sequence[str] = ()
    seconds: float = 0.0            # of the whole process
    exit_status: int = 0
    was_stopped: bool = False       # by us, at its time limit
    code: frozenset[str] = frozenset()      # what was compiled; empty: not known
    stdout: str = ""                # the file with what it printed
    stderr: str = ""

    def lanes(self, unit: str) -> Mapping[str, Lane]:
        return {STEPS: self.steps or Lane()} if unit == "step" else self.functions

    def num_units(self, unit: str) -> int:
        return sum(lane.num_units for lane in self.lanes(unit).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What the trials have in common, and so are compared over: the first so many units of each lane."""

    unit: str
    lanes: Mapping[str, int]

    @property
    def num_units(self) -> int:
        return sum(self.lanes.values())

    def total(self, trial: Trial, num_planned: int) -> float:
        """Seconds for so many units: observed up to the units of the span, beyond them at the rate of its second half."""
        lanes, share = trial.lanes(self.unit), min(1.0, num_planned / self.num_units)
        observed = sum(lanes[name].total(units * share) for name, units in self.lanes.items())
        return observed + max(0, num_planned - self.num_units) * self.rate(trial)

    def rate(self, trial: Trial) -> float:
        """Seconds a unit towards the end, each lane by its share of the units."""
        lanes = trial.lanes(self.unit)
        return sum(lanes[name].rate(units) * units for name, units in self.lanes.items()) / self.num_units

    def startup(self, trial: Trial) -> float:
        """What the units took beyond their rate."""
        return self.total(trial, self.num_units) - self.rate(trial) * self.num_units

    def steady(self, trial: Trial) -> float | None:
        """Seconds of a unit without a compile; None if every unit had one."""
        lanes = trial.lanes(self.unit)
        quiet = [(units, lanes[name].steady(units)) for name, units in self.lanes.items()]
        seconds = [(units, total / number) for units, (number, total) in quiet if number]
        return sum(units * each for units, each in seconds) / sum(units for units, _ in seconds) if seconds else None

    def compiles_late(self, trial: Trial) -> bool:
        lanes = trial.lanes(self.unit)
        return any(lanes[name].compiles_late(units) for name, units in self.lanes.items())


def unit_of(trials: Iterable[Trial]) -> str:
    """`step` if every trial went through at least a few steps, else `call`."""
    return "step" if all(t.steps is not None and t.steps.num_units >= MIN_STEPS for t in trials) else "call"


def common_span(trials: Sequence[Trial]) -> Span:
    """The units that every one of these trials went through."""
    unit = unit_of(trials)
    names = trials[0].lanes(unit) if trials else {}
    units = {name: min(t.lanes(unit).get(name, Lane()).num_units for t in trials) for name in names}
    return Span(unit=unit, lanes={name: number for name, number in units.items() if number})
