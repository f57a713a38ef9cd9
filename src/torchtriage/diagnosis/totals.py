"""Counts over an entire run, or over its steady state, to which the shares of a cost refer."""

import statistics
from collections.abc import Collection
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.frames import FrameKey, frame_key
from torchtriage.diagnosis.compiles.resume_frames import break_key
from torchtriage.findings.severity import MIN_STEADY_STEPS
from torchtriage.recording.events import (
    Anomaly,
    CompileEnd,
    CompileSite,
    CompileStart,
    GraphBreak,
    LimitHit,
    Recompile,
    Tap,
)
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.series import STEP_SECONDS

NOT_METERED = ("trace", "log", "scalars")      # origins that do not count the calls that ran eager


def totals(recording: Recording) -> dict[str, float | int | None]:
    """The totals by the names of findings.report.TOTALS.

    Counts are summed over processes. Processes run in parallel, so compile time and steps are those of the largest.
    """
    breaks = list(recording.of(GraphBreak))
    ends = [[e for e in p.of(CompileEnd) if e.seconds is not None] for p in recording.processes]
    steps = [p.num_steps for p in recording.processes if p.num_steps is not None]
    return {
        "compiles": sum(1 for _ in recording.of(CompileStart)),
        "graph_breaks": len(breaks),
        "distinct_graph_breaks": len({break_key(b) for b in breaks}),
        "recompiles": sum(1 for _ in recording.of(Recompile)),
        "frames_at_limit": sum(len(_frames_at_limit(p)) for p in recording.processes),
        "eager_calls": _num_eager_calls(recording),
        "compile_seconds": round(max(busy_seconds(e) for e in ends), 3) if any(ends) else None,
        "steps": max(steps) if steps else None,
        "run_seconds": _longest_run(recording),
    }


def _longest_run(recording: Recording) -> float | None:
    lengths = [length for p in recording.processes if (length := run_seconds(p)) is not None]
    return round(max(lengths), 3) if lengths else None


def run_seconds(process: Process) -> float | None:
    """How long a process ran; None if its start or its end was not recorded."""
    start, end = process.program.start, process.recorder.end
    return end - start if start and end and end > start else None


def _frames_at_limit(process: Process) -> set[FrameKey]:
    return {frame_key(e) for e in process.of(LimitHit)}


def _num_eager_calls(recording: Recording) -> int | None:
    """The calls that ran eager; None if they were not counted."""
    counts = [p.eager_calls.eager for p in recording.processes if p.eager_calls is not None]
    if counts:
        return sum(counts)
    if recording.origin in NOT_METERED or any(map(_frames_at_limit, recording.processes)):
        return None
    return 0


def is_idle(process: Process) -> bool:
    """Whether a process has no series, no broken contracts and no events but those of its taps and of its source."""
    has_learned = process.series or process.learning.contracts
    return not has_learned and all(isinstance(event, (Tap, CompileSite)) for event in process.events)


def has_learning(process: Process) -> bool:
    """Whether a process has anything for the learning rules; a trace and a log have nothing for them."""
    has_facts = bool(process.learning.contracts)
    return has_facts or bool(process.series) or any(isinstance(event, Anomaly) for event in process.events)


def busy_seconds(ends: list[CompileEnd]) -> float:
    """The time that these compiles cover; overlapping compiles (threads, nested) count once."""
    spans = sorted((e.time - (e.seconds or 0.0), e.time) for e in ends)
    total, reach = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The steady state of a process; a share of it is known only if it has enough steps."""

    start: float
    end: float
    first_step: int
    num_steps: int

    @property
    def is_known(self) -> bool:
        return self.num_steps >= MIN_STEADY_STEPS and self.end > self.start


def last_first_compile(process: Process) -> CompileEnd | None:
    """The end of the last first-time compile of a frame, after which steady state begins."""
    first_compiles = (e for e in process.of(CompileEnd) if e.compile_id is not None and e.compile_id.endswith("/0"))
    return max(first_compiles, key=lambda e: e.time, default=None)


def steady_state(process: Process) -> Steady:
    """The steady state of a process, computed once."""
    return process.once(_steady_state)


def _steady_state(process: Process) -> Steady:
    last = last_first_compile(process)
    start = last.time if last else (process.program.start or 0.0)
    end = process.recorder.end or max((e.time for e in process.events), default=start)
    first_step = (last.step or 0) if last else 0
    return Steady(start=start, end=end, first_step=first_step, num_steps=(process.num_steps or 0) - first_step)


def recompile_share(process: Process, compile_ids: Collection[str]) -> float | None:
    """The share of steady state that these recompiles took; None if it is unknown or they stopped.

    Recompiles that stop cost a fixed time, so their share would only reflect the length of the run.
    """
    steady = steady_state(process)
    ids = set(compile_ids)
    ends = []
    for end in process.of(CompileEnd):
        if end.compile_id in ids and end.seconds is not None and end.time > steady.start:
            ends.append(end)
    middle = steady.first_step + steady.num_steps / 2
    if not steady.is_known or not any((e.step or 0) > middle for e in ends):
        return None
    return sum(e.seconds or 0.0 for e in ends) / (steady.end - steady.start)


def step_milliseconds(process: Process) -> float | None:
    """The median step time, which excludes compiles as outliers; None if the program had too few steps."""
    series = process.series.get(STEP_SECONDS)
    if series is None or len(series.values) < MIN_STEADY_STEPS:
        return None
    return 1000.0 * statistics.median(series.values)
