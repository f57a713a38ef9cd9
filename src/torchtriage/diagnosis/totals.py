"""How much happened in a run and when it settled: the counts of a report, and the steady state that shares refer to."""

import statistics
from collections.abc import Collection
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.frames import frame_key
from torchtriage.diagnosis.compiles.resume_frames import break_key
from torchtriage.findings.severity import MIN_STEADY_STEPS
from torchtriage.recording.events import CompileEnd, CompileStart, GraphBreak, LimitHit, Recompile, Tap
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.series import STEP_SECONDS

NOT_METERED = ("trace", "log")      # nobody counted the calls that ran eager


def totals(recording: Recording) -> dict[str, float | int | None]:
    """By the names of findings.report.TOTALS; of several processes counts add up, while time and steps run side by side."""
    breaks = list(recording.of(GraphBreak))
    ends = [[e for e in p.of(CompileEnd) if e.seconds is not None] for p in recording.processes]
    eager = [p.eager_calls.eager for p in recording.processes if p.eager_calls is not None]
    steps = [p.num_steps for p in recording.processes if p.num_steps is not None]
    limits = [{frame_key(e) for e in p.of(LimitHit)} for p in recording.processes]
    return {
        "compiles": sum(1 for _ in recording.of(CompileStart)), "graph_breaks": len(breaks),
        "distinct_graph_breaks": len({break_key(b) for b in breaks}), "recompiles": sum(1 for _ in recording.of(Recompile)),
        "frames_at_limit": sum(len(frames) for frames in limits),
        "eager_calls": sum(eager) if eager else (None if any(limits) or recording.origin in NOT_METERED else 0),
        "compile_seconds": round(max(busy_seconds(e) for e in ends), 3) if any(ends) else None,
        "steps": max(steps) if steps else None,
    }


def is_idle(process: Process) -> bool:
    """Whether nothing is known about a process except that it was watched."""
    return not process.series and all(isinstance(event, Tap) for event in process.events)


def busy_seconds(ends: list[CompileEnd]) -> float:
    """The time covered by these compiles; overlapping ones (threads, nested) count once."""
    spans = sorted((e.time - (e.seconds or 0.0), e.time) for e in ends)
    total, reach = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """When steady state began and ended; a share is known only if enough steps lie in it."""

    start: float
    end: float
    first_step: int
    num_steps: int

    @property
    def is_known(self) -> bool:
        return self.num_steps >= MIN_STEADY_STEPS and self.end > self.start


def last_first_compile(process: Process) -> CompileEnd | None:
    """The end of the last compile of a frame that had not been compiled before: what follows is steady state."""
    first_compiles = (e for e in process.of(CompileEnd) if e.compile_id is not None and e.compile_id.endswith("/0"))
    return max(first_compiles, key=lambda e: e.time, default=None)


def steady_state(process: Process) -> Steady:
    """The steady state of a process, worked out once."""
    return process.once(_steady_state)


def _steady_state(process: Process) -> Steady:
    last = last_first_compile(process)
    start = last.time if last else (process.program.start or 0.0)
    end = process.recorder.end or max((e.time for e in process.events), default=start)
    first_step = (last.step or 0) if last else 0
    return Steady(start=start, end=end, first_step=first_step, num_steps=(process.num_steps or 0) - first_step)


def recompile_share(process: Process, compile_ids: Collection[str]) -> float | None:
    """The share of steady state that these recompiles took; None if it is unknown or they came to rest.

    Recompiles that settle cost a fixed time, so their share would only tell how long the run was.
    """
    steady = steady_state(process)
    wanted = set(compile_ids)
    ends = [e for e in process.of(CompileEnd) if e.compile_id in wanted and e.seconds is not None and e.time > steady.start]
    middle = steady.first_step + steady.num_steps / 2
    if not steady.is_known or not any((e.step or 0) > middle for e in ends):
        return None
    return sum(e.seconds or 0.0 for e in ends) / (steady.end - steady.start)


def step_milliseconds(process: Process) -> float | None:
    """The median step, compiles excluded as outliers; None if the program showed too few steps."""
    series = process.series.get(STEP_SECONDS)
    if series is None or len(series.values) < MIN_STEADY_STEPS:
        return None
    return 1000.0 * statistics.median(series.values)
