"""Every compile of a process with the events that belong to it, from its start to its end and its backward."""

from dataclasses import dataclass, field

from torchtriage.diagnosis.frames import FrameKey, frame_key
from torchtriage.diagnosis.once import once
from torchtriage.recording.events import CompileEnd, CompileStart, GraphBreak, GuardValue, Placed, Recompile
from torchtriage.recording.recording import Process


@dataclass(slots=True)
class Attempt:
    """One compile of one frame: what a log or a cut-off recording does not tell is None."""

    compile_id: str | None
    generation: int = 0     # torch._dynamo.reset() begins the ids anew: an id names one compile within a generation
    start: CompileStart | None = None
    end: CompileEnd | None = None
    recompile: Recompile | None = None
    backward: list[CompileEnd] = field(default_factory=list)
    breaks: list[GraphBreak] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)    # guarded source, its value at this compile

    @property
    def place(self) -> Placed:
        """The event that tells best where this is: the start has the stack."""
        return self.start or self.recompile or self.end or self.backward[0]

    @property
    def key(self) -> FrameKey:
        return frame_key(self.place)

    @property
    def step(self) -> int | None:
        return self.place.step

    @property
    def frame_number(self) -> str:
        """Which code object it is; the two sides of a branch after a break share their name and line, never this."""
        return (self.compile_id or "").rpartition("/")[0]

    @property
    def is_complete(self) -> bool:
        return self.end is not None and self.end.fail_type is None and self.end.produced_code is not False

    @property
    def seconds(self) -> float | None:
        return self.end.seconds if self.end else None

    @property
    def begin(self) -> float:
        """When it began, 0 if unknown: torch says so a little late, and tells the length before it tells the end."""
        told = [e.time for e in (self.start, self.recompile) if e is not None]
        known = [*told, began(self.end)] if self.end else told
        return min((time for time in known if time > 0), default=0.0)


def began(end: CompileEnd) -> float:
    """When a compile that ended began, by its length; 0 if the source has no times."""
    return end.time - (end.seconds or 0.0) if end.time > 0 else 0.0


@once
def attempts(process: Process) -> list[Attempt]:
    """The compiles of a process in the order they began."""
    found: list[Attempt] = []
    latest: dict[str, Attempt] = {}
    started: set[str] = set()
    generation = 0

    def new(event: Placed) -> Attempt:
        attempt = Attempt(compile_id=event.compile_id, generation=generation)
        if event.compile_id is not None:
            latest[event.compile_id] = attempt
        found.append(attempt)
        return attempt

    for event in process.events:
        attempt = latest.get(event.compile_id) if event.compile_id is not None else None
        if isinstance(event, Recompile):
            new(event).recompile = event
        elif isinstance(event, CompileStart):
            if event.compile_id in started:
                generation += 1
                started.clear()
            started.add(event.compile_id or "")
            is_awaited = attempt is not None and attempt.start is None and attempt.end is None
            attempt = attempt if attempt is not None and is_awaited else new(event)
            attempt.start, attempt.generation = event, generation
        elif isinstance(event, CompileEnd) and event.is_backward:
            (attempt or new(event)).backward.append(event)
        elif isinstance(event, CompileEnd):
            (attempt if attempt is not None and attempt.end is None else new(event)).end = event
        elif isinstance(event, GraphBreak) and attempt is not None:
            attempt.breaks.append(event)
        elif isinstance(event, GuardValue) and attempt is not None:
            attempt.values.setdefault(event.source, event.value)
    return found
