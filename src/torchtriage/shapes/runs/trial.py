"""One run of a program under one shape policy, as the statistics need it: how long its units took, and what was compiled in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchtriage.diagnosis.totals import busy_seconds, totals
from torchtriage.recording.events import CompileEnd, CompileStart, LimitHit
from torchtriage.recording.facts import Override
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.recording.series import CALL_COMPILES, CALL_SECONDS, STEP_SECONDS, series_of

if TYPE_CHECKING:
    from torchtriage.shapes.runs.turns import Pauses

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


_SAID = {"true": "dynamic=True", "false": "dynamic=False", "none": "dynamic=None"}     # else another argument that says the same


def read_trial(recording: Recording, policy: str, number: int, pauses: "Pauses | None" = None, **outcome: Any) -> Trial:
    """The trial that a recording holds; `outcome`: how the process ended, in the fields of a Trial."""
    process, counts = main_process(recording), totals(recording)
    compiles, eager = counts["compiles"], counts["eager_calls"]
    return Trial(
        policy=policy, round=number, steps=step_lane(process), functions=call_lanes(process), sites=_sites(process),
        num_compiles=int(compiles or 0), num_recompiles=int(counts["recompiles"] or 0), num_eager_calls=int(eager or 0),
        hit_limit=any(True for _ in recording.of(LimitHit)), compile_seconds=compile_seconds(recording, pauses),
        first_call_seconds=process.policy.first_call_seconds, peak_memory_bytes=peak_memory(process),
        overridden=overridden(process), **outcome,
    )


def main_process(recording: Recording) -> Process:
    """The process that called compiled functions most; an empty one if none did."""
    def num_calls(process: Process) -> int:
        return sum(function.num_calls for function in process.policy.functions)

    return max(recording.processes, key=num_calls, default=Process())


def compile_seconds(recording: Recording, pauses: "Pauses | None") -> float:
    """Of the process that compiled longest, without the time that it stood still: torch's own clock goes on then."""
    def active(end: CompileEnd) -> CompileEnd:
        began, ended = end.time - (end.seconds or 0.0), end.time
        if pauses is not None:
            began, ended = pauses.active(began), pauses.active(ended)
        return replace(end, time=ended, seconds=ended - began)

    return max((busy_seconds(list(map(active, process.of(CompileEnd)))) for process in recording.processes), default=0.0)


def peak_memory(process: Process) -> int | None:
    """On the device, if there is one; else of the process."""
    return process.policy.peak_device_memory_bytes or process.policy.peak_memory_bytes


def overridden(process: Process) -> tuple[str, ...]:
    """train.py:31 model: dynamic=False -> True."""
    def change(call: Override) -> str:
        place = f"{Path(call.path).name}:{call.line} {call.target}"
        return f"{place}: {_SAID.get(call.written, call.written)} -> {_SAID[call.forced].partition('=')[2]}"

    return tuple(dict.fromkeys(map(change, process.policy.overrides)))


def step_lane(process: Process) -> Lane | None:
    """The steps from the first compiled call on: the first lasts from that call to its end."""
    series, num_steps, began = process.series.get(STEP_SECONDS), process.num_steps, process.policy.first_call_time
    if series is None or not num_steps or began is None:
        return None
    compiles = _compiles_by_step(process)
    stretches = _stretches(series, num_steps)
    stretches = [Stretch(n, s, sum(compiles.get(at + i, 0) for i in range(n))) for at, (n, s, _) in _numbered(stretches, first=2)]
    first = (process.steps.first_step_time or 0.0) - began
    return Lane((*((Stretch(1, first, compiles.get(1, 0)),) if first > 0 else ()), *stretches))


def _compiles_by_step(process: Process) -> Mapping[int, int]:
    """Step -> compiles that began in it; an event carries the steps that had ended before it."""
    found: dict[int, int] = {}
    for event in process.of(CompileStart):
        step = (event.step or 0) + 1
        found[step] = found.get(step, 0) + 1
    return found


def call_lanes(process: Process) -> dict[str, Lane]:
    """The outermost calls of every compiled function."""
    lanes: dict[str, Lane] = {}
    for k, name in enumerate(_names(process)):
        seconds, compiles = process.series.get(series_of(CALL_SECONDS, str(k))), process.series.get(series_of(CALL_COMPILES, str(k)))
        if seconds is None:
            continue
        num_calls = process.policy.functions[k].num_calls
        begun = [s.seconds for s in _stretches(compiles, num_calls)] if compiles is not None else []
        begun += [0.0] * (len(seconds.values) - len(begun))
        lanes[name] = Lane(tuple(Stretch(n, s, c) for (n, s, _), c in zip(_stretches(seconds, num_calls), begun, strict=False)))
    return lanes


def _names(process: Process) -> list[str]:
    return [f"{f.target} ({Path(f.path).name}:{f.line})" for f in process.policy.functions]


def _sites(process: Process) -> dict[str, str]:
    functions = process.policy.functions
    return {name: f"{f.path}:{f.line}" for name, f in zip(_names(process), functions, strict=True)}


def _stretches(series: Series, last_unit: int) -> list[Stretch]:
    """Each point is the mean over the units up to the next point, the last one up to `last_unit`."""
    firsts = [int(step) for step in series.steps]
    ends = [*firsts[1:], max(last_unit + 1, firsts[-1] + 1 if firsts else 1)]
    return [Stretch(end - first, value * (end - first), 0) for first, end, value in zip(firsts, ends, series.values, strict=False)]


def _numbered(stretches: Sequence[Stretch], first: int) -> list[tuple[int, Stretch]]:
    found, at = [], first
    for stretch in stretches:
        found.append((at, stretch))
        at += stretch.num_units
    return found
