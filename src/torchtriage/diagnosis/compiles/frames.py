"""The one model of what Dynamo did to the frames of a process: every compile, from its first event to its last.

Start at `CompileHistory.of(process)`; it walks the events once, and every rule, history and ticket reads its result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torchtriage.recording.events import (
    CompileEnd,
    CompileStart,
    Event,
    FrameSkipped,
    GraphBreak,
    GuardValue,
    LimitHit,
    Placed,
    Recompile,
)
from torchtriage.recording.recording import Process
from torchtriage.text import resume_of

FrameKey = tuple[str, str, int | None]      # path, function, first line


def frame_key(event: Placed) -> FrameKey:
    """The code object of an event that names a frame."""
    return event.path, event.function, event.line


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFailure:
    """The error that ended a compile; a suppressed one leaves the function eager, any other reaches the caller."""

    type: str
    reason: str = ""
    is_suppressed: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Compile:
    """One compile of one frame. A part that a log or a truncated recording lacks is None or empty.

    `torch._dynamo.reset()` restarts the compile ids, so an id names one compile only within its generation.
    """

    compile_id: str | None
    generation: int             # number of resets observed before it
    position: int               # index of its first event in Process.events
    recompile: Recompile | None = None
    start: CompileStart | None = None
    end: CompileEnd | None = None
    backward: list[CompileEnd] = field(default_factory=list)        # torch compiles it at the first backward pass
    breaks: list[GraphBreak] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)            # guarded source -> its value at this compile
    dynamic: set[str] = field(default_factory=set)                  # those of the sources that are symbols in the graph

    @property
    def place(self) -> Placed:
        """The event that locates the frame best: the start carries the stack."""
        return self.start or self.recompile or self.end or self.backward[0]

    @property
    def key(self) -> FrameKey:
        return frame_key(self.place)

    @property
    def step(self) -> int | None:
        return self.place.step

    @property
    def frame_number(self) -> str:
        """Dynamo's number of the code object: both sides of a branch after a break share name and line, never this."""
        return (self.compile_id or "").rpartition("/")[0]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The failed guard of each cache entry, newest entry first; empty for a first compile."""
        return self.recompile.reasons if self.recompile else ()

    @property
    def num_omitted(self) -> int:
        """The cache entries whose failed guard was not recorded."""
        return self.recompile.num_omitted if self.recompile else 0

    @property
    def failure(self) -> CompileFailure | None:
        """The error that ended it; None if it ended without one or its end was not recorded."""
        if self.end is None or not self.end.fail_type:
            return None
        suppressed = bool(self.end.suppress_errors)
        return CompileFailure(type=self.end.fail_type, reason=self.end.fail_reason or "", is_suppressed=suppressed)

    @property
    def is_complete(self) -> bool:
        """Whether it ended well and made code."""
        return self.end is not None and self.end.fail_type is None and self.end.produced_code is not False

    @property
    def ends(self) -> list[CompileEnd]:
        """The end of the forward compile and those of the backward."""
        return [*([self.end] if self.end else []), *self.backward]

    @property
    def seconds(self) -> float | None:
        """Time of the forward compile; None if torch did not record it."""
        return self.end.seconds if self.end else None

    @property
    def begin(self) -> float:
        """When it began, 0 if unknown.

        The start event comes a little late, so the end minus its length may be earlier.
        """
        times = [event.time for event in (self.start, self.recompile) if event is not None]
        if self.end is not None:
            times.append(begin_of(self.end))
        return min((time for time in times if time > 0), default=0.0)


def begin_of(end: CompileEnd) -> float:
    """When a compile that ended began, by its length; 0 if the source has no times."""
    return end.time - (end.seconds or 0.0) if end.time > 0 else 0.0


def compile_seconds(compiles: Iterable[Compile]) -> float | None:
    """Observed time of these compiles, their backward included; None if none of them was timed."""
    timed = [end.seconds for compile_ in compiles for end in compile_.ends if end.seconds is not None]
    return sum(timed) if timed else None


@dataclass(slots=True, eq=False, kw_only=True)
class Frame:
    """One code object, its compiles over all generations, and Dynamo's refusals to compile it again."""

    key: FrameKey
    compiles: list[Compile] = field(default_factory=list)
    limits: list[LimitHit] = field(default_factory=list)

    @property
    def function(self) -> str:
        return self.key[1]

    @property
    def is_resume(self) -> bool:
        return resume_of(self.function) is not None

    @property
    def starts(self) -> list[CompileStart]:
        return [compile_.start for compile_ in self.compiles if compile_.start is not None]

    @property
    def ends(self) -> list[CompileEnd]:
        return [end for compile_ in self.compiles for end in compile_.ends]

    @property
    def recompiles(self) -> list[Recompile]:
        return [compile_.recompile for compile_ in self.compiles if compile_.recompile is not None]

    @property
    def seconds(self) -> float | None:
        """Observed time of all its compiles; None if none was timed."""
        return compile_seconds(self.compiles)


class CompileHistory:
    """Every compile of one process in the order in which they began, and the frames that they belong to."""

    compiles: list[Compile]
    frames: Mapping[FrameKey, Frame]        # every frame that was compiled or refused, in order of appearance

    def __init__(self, process: Process) -> None:
        self.compiles = []
        self._generation = 0
        self._begun: set[str] = set()                       # compile ids in use in the present generation
        self._latest: dict[str, Compile] = {}               # by compile id
        self._compile_of: dict[int, Compile] = {}           # by identity of the event: equal events are common
        self._generation_of: dict[int, int] = {}
        self._by_id: dict[tuple[int, str], Compile] = {}
        for position, event in enumerate(process.events):
            self._read(event, position)
        self.frames = self._collect_frames(process)

    @classmethod
    def of(cls, process: Process) -> "CompileHistory":
        """The history of a process, built once and kept with it; treat it as read-only."""
        return process.once(cls)

    @property
    def num_generations(self) -> int:
        """One more than the resets of Dynamo that were observed."""
        return self._generation + 1

    def compile_of(self, event: Event) -> Compile | None:
        """The compile during which the event came; None if its beginning was not recorded."""
        return self._compile_of.get(id(event))

    def start_of(self, event: Placed) -> Placed:
        """The start of the event's compile, which has the stack that most events lack; else the event itself."""
        compile_ = self.compile_of(event)
        return compile_.start if compile_ is not None and compile_.start is not None else event

    def generation_of(self, event: Event) -> int:
        """Resets of Dynamo before this compile, break, limit or skip."""
        compile_ = self.compile_of(event)
        return compile_.generation if compile_ is not None else self._generation_of.get(id(event), 0)

    def find(self, generation: int, compile_id: str | None) -> Compile | None:
        """The compile that an id names in a generation, for example the cache entry of a failed guard."""
        return self._by_id.get((generation, compile_id)) if compile_id is not None else None

    def _read(self, event: Event, position: int) -> None:
        latest = self._latest.get(event.compile_id) if event.compile_id is not None else None
        current = latest if latest is not None and latest.generation == self._generation else None
        compile_: Compile | None = None
        if isinstance(event, Recompile):
            compile_ = self._begin(event, position)
            compile_.recompile = event
        elif isinstance(event, CompileStart):
            # A recompile is reported just before the start of the compile that it leads to.
            is_awaited = current is not None and current.start is None and current.end is None
            compile_ = current if current is not None and is_awaited else self._begin(event, position)
            compile_.start = event
        elif isinstance(event, CompileEnd) and event.is_backward:
            compile_ = latest or self._new(event, position)     # it may come long after the forward, even after a reset
            compile_.backward.append(event)
        elif isinstance(event, CompileEnd):
            compile_ = current if current is not None and current.end is None else self._new(event, position)
            compile_.end = event
        elif isinstance(event, GraphBreak) and current is not None:
            compile_ = current
            compile_.breaks.append(event)
        elif isinstance(event, GuardValue) and current is not None:
            current.values.setdefault(event.source, event.value)
            if event.is_dynamic:
                current.dynamic.add(event.source)
        if compile_ is not None:
            self._compile_of[id(event)] = compile_
        elif isinstance(event, (GraphBreak, LimitHit, FrameSkipped)):
            self._generation_of[id(event)] = self._generation

    def _begin(self, event: Placed, position: int) -> Compile:
        """A new compile; Dynamo numbers the compiles of a frame, so an id that begins again follows a reset."""
        if event.compile_id is not None:
            if event.compile_id in self._begun:
                self._generation += 1
                self._begun.clear()
            self._begun.add(event.compile_id)
        return self._new(event, position)

    def _new(self, event: Placed, position: int) -> Compile:
        compile_ = Compile(compile_id=event.compile_id, generation=self._generation, position=position)
        self.compiles.append(compile_)
        if event.compile_id is not None:
            self._latest[event.compile_id] = compile_
            self._by_id[self._generation, event.compile_id] = compile_
        return compile_

    def _collect_frames(self, process: Process) -> dict[FrameKey, Frame]:
        by_position = {compile_.position: compile_ for compile_ in self.compiles}
        frames: dict[FrameKey, Frame] = {}
        for position, event in enumerate(process.events):
            compile_ = by_position.get(position)
            if compile_ is not None:
                frames.setdefault(compile_.key, Frame(key=compile_.key)).compiles.append(compile_)
            elif isinstance(event, LimitHit):
                frames.setdefault(frame_key(event), Frame(key=frame_key(event))).limits.append(event)
        return frames
