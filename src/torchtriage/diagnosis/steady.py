"""Steady state: the part of a run after its last first-time compile, over which shares are taken."""

import statistics
from collections.abc import Collection
from dataclasses import dataclass

from torchtriage.diagnosis.once import once
from torchtriage.findings.severity import MIN_STEADY_STEPS
from torchtriage.recording.events import CompileEnd
from torchtriage.recording.recording import Process


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


@once
def steady_state(process: Process) -> Steady:
    last = last_first_compile(process)
    start = last.time if last else float(process.facts.get("start") or 0.0)
    end = float(process.facts.get("end") or max((e.time for e in process.events), default=start))
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
    series = process.series.get("step_seconds")
    if series is None or len(series.values) < MIN_STEADY_STEPS:
        return None
    return 1000.0 * statistics.median(series.values)
