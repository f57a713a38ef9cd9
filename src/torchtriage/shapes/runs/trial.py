"""One run of a program under one shape policy: the cost of its units (steps or calls)."""

from collections import Counter
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
    from torchtriage.proof.runs.turns import Pauses

MIN_STEPS = 5       # with fewer, a program is compared by its calls of compiled functions
STEPS = "steps"     # the name of the only lane of a program with steps


class Stretch(NamedTuple):
    """Consecutive units: more than one only where a long series was merged."""

    num_units: int
    seconds: float
    num_compiles: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A sequence of units: the steps of a program, or the calls of one compiled function."""

    stretches: tuple[Stretch, ...] = ()

    @classmethod
    def of(cls, seconds: Sequence[float], compiles: Iterable[float] = repeat(0)) -> "Lane":
        """From the seconds of each unit, and the compiles that began in it."""
        return cls(tuple(Stretch(1, s, c) for s, c in zip(seconds, compiles, strict=False)))

    @property
    def num_units(self) -> int:
        return sum(s.num_units for s in self.stretches)

    def total(self, units: float) -> float:
        """Seconds of the first `units` units."""
        left, seconds = units, 0.0
        for stretch in self.stretches:
            if left <= 0:
                break
            part = min(left, stretch.num_units)
            seconds += stretch.seconds * part / stretch.num_units
            left -= part
        return seconds

    def rate(self, units: int) -> float:
        """Seconds per unit over the second half of the first `units`, including the compiles in it."""
        half = units // 2
        return (self.total(units) - self.total(half)) / (units - half)

    def compiles_late(self, units: int) -> bool:
        """Whether anything compiled in the second half of the first `units` units."""
        return any(s.num_compiles for s in self._between(units // 2, units))

    def steady(self, units: int) -> tuple[int, float]:
        """(number, seconds) of the units without a compile among the first `units`.

        Only those of the second half, if there are any.
        """
        for begin in (units // 2, 0):
            quiet = [s for s in self._between(begin, units) if not s.num_compiles]
            if quiet:
                break
        return sum(s.num_units for s in quiet), sum(s.seconds for s in quiet)

    def _between(self, begin: int, end: int) -> list[Stretch]:
        """The stretches whose first unit is after the first `begin` units and before `end`."""
        stretches, at = [], 0
        for stretch in self.stretches:
            if begin <= at < end:
                stretches.append(stretch)
            at += stretch.num_units
        return stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of one policy in one round."""

    policy: str
    round: int
    steps: Lane | None = None                                       # None: the program has no recognizable steps
    functions: Mapping[str, Lane] = field(default_factory=dict)     # compiled function -> its outermost calls
    sites: Mapping[str, str] = field(default_factory=dict)          # compiled function -> path:line of torch.compile
    num_compiles: int | None = None
    num_recompiles: int | None = None
    num_eager_calls: int = 0
    hit_limit: bool = False
    compile_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    overridden: Sequence[str] = ()
    seconds: float = 0.0            # of the entire process
    exit_status: int = 0
    was_stopped: bool = False       # by the study, at its time limit
    code: frozenset[str] = frozenset()      # the generated code; empty: unknown
    stdout: str = ""                # path of the file with its output
    stderr: str = ""

    def lanes(self, unit: str) -> Mapping[str, Lane]:
        return {STEPS: self.steps or Lane()} if unit == "step" else self.functions

    def num_units(self, unit: str) -> int:
        return sum(lane.num_units for lane in self.lanes(unit).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The part that several trials have in common, over which they are compared: the first units of each lane."""

    unit: str
    lanes: Mapping[str, int]

    @property
    def num_units(self) -> int:
        return sum(self.lanes.values())

    def total(self, trial: Trial, num_planned: int) -> float:
        """Seconds for `num_planned` units: observed within the span, beyond it at the rate of its second half."""
        lanes, share = trial.lanes(self.unit), min(1.0, num_planned / self.num_units)
        observed = sum(lanes[name].total(units * share) for name, units in self.lanes.items())
        return observed + max(0, num_planned - self.num_units) * self.rate(trial)

    def rate(self, trial: Trial) -> float:
        """Seconds per unit towards the end, weighted by the units of each lane."""
        lanes = trial.lanes(self.unit)
        return sum(lanes[name].rate(units) * units for name, units in self.lanes.items()) / self.num_units

    def startup(self, trial: Trial) -> float:
        """The seconds that the units took in addition to their rate."""
        return self.total(trial, self.num_units) - self.rate(trial) * self.num_units

    def steady(self, trial: Trial) -> float | None:
        """Seconds per unit without a compile; None if every unit had one."""
        lanes = trial.lanes(self.unit)
        num_units, total = 0, 0.0
        for name, units in self.lanes.items():
            num_quiet, seconds = lanes[name].steady(units)
            if num_quiet:
                num_units += units
                total += units * seconds / num_quiet
        return total / num_units if num_units else None

    def compiles_late(self, trial: Trial) -> bool:
        lanes = trial.lanes(self.unit)
        return any(lanes[name].compiles_late(units) for name, units in self.lanes.items())


def unit_of(trials: Iterable[Trial]) -> str:
    """`step` if every trial made at least a few steps, else `call`."""
    return "step" if all(t.steps is not None and t.steps.num_units >= MIN_STEPS for t in trials) else "call"


def common_span(trials: Sequence[Trial]) -> Span:
    """The units that every one of these trials completed."""
    unit = unit_of(trials)
    names = trials[0].lanes(unit) if trials else {}
    units = {name: min(t.lanes(unit).get(name, Lane()).num_units for t in trials) for name in names}
    return Span(unit=unit, lanes={name: number for name, number in units.items() if number})


# Any other word is the name of another argument with the same effect.
_DYNAMIC = {"true": "dynamic=True", "false": "dynamic=False", "none": "dynamic=None"}


def read_trial(
    recording: Recording, policy: str, number: int, pauses: "Pauses | None" = None, **outcome: Any,
) -> Trial:
    """The trial in a recording; `outcome`: how the process ended, as fields of a Trial."""
    process, counts = main_process(recording), totals(recording)
    return Trial(
        policy=policy, round=number, steps=step_lane(process), functions=call_lanes(process), sites=_sites(process),
        num_compiles=int(counts["compiles"] or 0), num_recompiles=int(counts["recompiles"] or 0),
        num_eager_calls=int(counts["eager_calls"] or 0),
        hit_limit=any(True for _ in recording.of(LimitHit)), compile_seconds=compile_seconds(recording, pauses),
        first_call_seconds=process.policy.first_call_seconds, peak_memory_bytes=peak_memory(process),
        overridden=overridden(process), **outcome,
    )


def main_process(recording: Recording) -> Process:
    """The process with the most calls of compiled functions; an empty one if there are none."""
    def num_calls(process: Process) -> int:
        return sum(function.num_calls for function in process.policy.functions)

    return max(recording.processes, key=num_calls, default=Process())


def compile_seconds(recording: Recording, pauses: "Pauses | None") -> float:
    """Of the process that compiled longest, without its pauses, during which torch's own clock continues."""
    def active(end: CompileEnd) -> CompileEnd:
        began, ended = end.time - (end.seconds or 0.0), end.time
        if pauses is not None:
            began, ended = pauses.active(began), pauses.active(ended)
        return replace(end, time=ended, seconds=ended - began)

    by_process = [busy_seconds([active(end) for end in process.of(CompileEnd)]) for process in recording.processes]
    return max(by_process, default=0.0)


def peak_memory(process: Process) -> int | None:
    """Of the device if it was used, else of the process."""
    return process.policy.peak_device_memory_bytes or process.policy.peak_memory_bytes


def overridden(process: Process) -> tuple[str, ...]:
    """train.py:31 model: dynamic=False -> True."""
    def change(call: Override) -> str:
        place = f"{Path(call.path).name}:{call.line} {call.target}"
        return f"{place}: {_DYNAMIC.get(call.written, call.written)} -> {_DYNAMIC[call.forced].partition('=')[2]}"

    return tuple(dict.fromkeys(map(change, process.policy.overrides)))


def step_lane(process: Process) -> Lane | None:
    """The steps from the first compiled call on; the first one lasts from that call to its end."""
    series, num_steps, began = process.series.get(STEP_SECONDS), process.num_steps, process.policy.first_call_time
    if series is None or not num_steps or began is None:
        return None
    compiles = _compiles_by_step(process)
    stretches = []
    first_seconds = (process.steps.first_step_time or 0.0) - began
    if first_seconds > 0:
        stretches.append(Stretch(1, first_seconds, compiles[1]))
    step = 2
    for num_steps_merged, seconds, _ in _stretches(series, num_steps):
        num_compiles = sum(compiles[step + i] for i in range(num_steps_merged))
        stretches.append(Stretch(num_steps_merged, seconds, num_compiles))
        step += num_steps_merged
    return Lane(tuple(stretches))


def _compiles_by_step(process: Process) -> Counter[int]:
    """Step -> compiles that began in it; an event carries the number of steps that ended before it."""
    return Counter((event.step or 0) + 1 for event in process.of(CompileStart))


def call_lanes(process: Process) -> dict[str, Lane]:
    """The outermost calls of every compiled function."""
    lanes: dict[str, Lane] = {}
    for k, name in enumerate(_names(process)):
        seconds = process.series.get(series_of(CALL_SECONDS, str(k)))
        compiles = process.series.get(series_of(CALL_COMPILES, str(k)))
        if seconds is None:
            continue
        num_calls = process.policy.functions[k].num_calls
        num_compiles = [s.seconds for s in _stretches(compiles, num_calls)] if compiles is not None else []
        num_compiles += [0.0] * (len(seconds.values) - len(num_compiles))
        pairs = zip(_stretches(seconds, num_calls), num_compiles, strict=False)
        lanes[name] = Lane(tuple(Stretch(n, s, c) for (n, s, _), c in pairs))
    return lanes


def _names(process: Process) -> list[str]:
    return [f"{f.target} ({Path(f.path).name}:{f.line})" for f in process.policy.functions]


def _sites(process: Process) -> dict[str, str]:
    functions = process.policy.functions
    return {name: f"{f.path}:{f.line}" for name, f in zip(_names(process), functions, strict=True)}


def _stretches(series: Series, last_unit: int) -> list[Stretch]:
    """Each point is the mean over the units up to the next point; the last point covers the units up to `last_unit`."""
    firsts = [int(step) for step in series.steps]
    ends = [*firsts[1:], max(last_unit + 1, firsts[-1] + 1 if firsts else 1)]
    points = zip(firsts, ends, series.values, strict=False)
    return [Stretch(end - first, value * (end - first), 0) for first, end, value in points]
