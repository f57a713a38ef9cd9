"""What happened when: the part of a report that is drawn. Times are seconds after the run began."""

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
    """One mark on the timeline; `seconds` is None for what has no length. `fingerprint` names the finding it belongs to, if any."""

    kind: MomentKind
    time: float
    process: int                # index into History.processes
    seconds: float | None = None
    step: int | None = None
    label: str = ""
    detail: str = ""
    compile_id: str = ""
    fingerprint: str = ""
    is_backward: bool = False   # the backward of a compile that has a mark of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEntry:
    """One compile of a frame: the guards that failed before it (none the first time), and the sizes it was made for."""

    compile_id: str
    time: float
    step: int | None = None
    seconds: float | None = None
    failed: str = ""            # why it produced no code, empty if it did
    num_ops: int | None = None
    num_guards: int | None = None
    guards_failed: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()    # guarded source, its value at this compile
    backward_seconds: float | None = None
    resumed_at: int | None = None   # the line, if it compiled what follows a graph break


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
    """One compiled function, its resume frames folded in: its compiles in order, and its newest pieces as a chain."""

    name: str
    location: Location
    process: int
    compiles: tuple[CompileEntry, ...] = ()      # of very many, the first and the last
    num_compiles: int = 0
    compile_seconds: float | None = None
    chain: tuple[Link, ...] = ()
    is_at_limit: bool = False
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHistory:
    """One process beside the others; an absent number is None."""

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
    steady_time: float | None = None    # when the last first-time compile was over
    steady_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Values by step of one process, such as `step_seconds` or, from telemetry, `loss`."""

    name: str
    process: int
    steps: Sequence[float]
    values: Sequence[float]
    times: Sequence[float] = ()     # when steps[i] began, where that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`start` is in seconds since the epoch, None if the source has no times; `seconds` is how long the run took."""

    start: float | None = None
    seconds: float | None = None
    processes: tuple[ProcessHistory, ...] = ()
    moments: tuple[Moment, ...] = ()
    frames: tuple[FrameHistory, ...] = ()
    curves: tuple[Curve, ...] = ()
