"""The course of a run, as the charts of a report draw it. Times are seconds after the run began."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.findings.model import UNKNOWN_PLACE, Location


class MomentKind(enum.StrEnum):
    COMPILE = "compile"         # the first compile of a frame
    RECOMPILE = "recompile"
    BREAK = "graph break"
    LIMIT = "recompile limit"
    SKIP = "frame skipped"
    ANOMALY = "anomaly"         # the learning, not the compiler


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One mark on the timeline; `seconds` is None for a point in time.

    `fingerprint` names the finding that the mark belongs to, if there is one.
    """

    kind: MomentKind
    time: float
    process: int                # index into History.processes
    seconds: float | None = None
    step: int | None = None
    label: str = ""
    detail: str = ""
    compile_id: str = ""
    fingerprint: str = ""
    is_backward: bool = False   # the backward of a compile, which has its own mark


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEntry:
    """One compile of a frame, with the guards that failed before it and the values that it was compiled for.

    The first compile of a frame has no failed guards.
    """

    compile_id: str
    time: float
    step: int | None = None
    seconds: float | None = None
    failed: str = ""            # why it produced no code; empty if it produced code
    num_ops: int | None = None
    num_guards: int | None = None
    guards_failed: tuple[str, ...] = ()     # newest cache entry first, cut after a few
    num_guards_failed: int = 0              # one per cache entry
    values: tuple[tuple[str, str], ...] = ()    # (guarded source, its value at this compile)
    backward_seconds: float | None = None
    resumed_at: int | None = None   # the line at which the code after a graph break begins, if it compiled that code


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of a frame's chain: a graph piece, or the break after it."""

    is_break: bool
    label: str
    detail: str = ""
    location: Location = UNKNOWN_PLACE
    compile_id: str = ""
    num_ops: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameHistory:
    """One compiled function, including its resume frames: its compiles in order, its latest pieces as a chain."""

    name: str
    location: Location
    process: int
    compiles: tuple[CompileEntry, ...] = ()     # only the first and the last ones if there are too many
    num_compiles: int = 0
    compile_seconds: float | None = None
    chain: tuple[Link, ...] = ()
    is_at_limit: bool = False
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHistory:
    """The counts and times of one process; an unknown number is None."""

    name: str                   # "rank 0", "process 4711"
    rank: int | None = None
    pid: int | None = None
    start: float | None = None
    end: float | None = None
    num_compiles: int = 0
    num_recompiles: int = 0
    num_breaks: int = 0
    compile_seconds: float | None = None
    num_steps: int | None = None
    step_milliseconds: float | None = None
    eager_calls: int | None = None
    steady_time: float | None = None    # when the last first-time compile ended
    steady_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A series of values by step from one process, such as `step_seconds` or telemetry's `loss`."""

    name: str
    process: int
    steps: Sequence[float]
    values: Sequence[float]
    times: Sequence[float] = ()     # when steps[i] began; empty if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The course of a run; `start` is in seconds since the epoch, or None if the source has no times."""

    start: float | None = None
    seconds: float | None = None
    processes: tuple[ProcessHistory, ...] = ()
    moments: tuple[Moment, ...] = ()
    frames: tuple[FrameHistory, ...] = ()
    curves: tuple[Curve, ...] = ()
