"""What happened to each compiled frame: its compiles, recompiles and limits, and the break that a resume frame comes from."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchtriage.diagnosis.places import resume_of
from torchtriage.recording.events import CompileEnd, CompileStart, GraphBreak, LimitHit, Placed, Recompile
from torchtriage.recording.recording import Process

FrameKey = tuple[str, str, int | None]      # path, function, first line
BreakKey = tuple[str, int | None, str, str]  # path, line, type, gb id


@dataclass(slots=True)
class Frame:
    """One code object and all that Dynamo did with it."""

    key: FrameKey
    starts: list[CompileStart] = field(default_factory=list)
    ends: list[CompileEnd] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    limits: list[LimitHit] = field(default_factory=list)

    @property
    def function(self) -> str:
        return self.key[1]

    @property
    def is_resume(self) -> bool:
        return resume_of(self.key[1]) is not None

    def seconds(self, compile_ids: Iterable[str | None] | None = None) -> float | None:
        """Observed compile seconds of these compile ids (default: all); None if none of them was timed."""
        wanted = None if compile_ids is None else set(compile_ids)
        timed = [e.seconds for e in self.ends if e.seconds is not None and (wanted is None or e.compile_id in wanted)]
        return sum(timed) if timed else None


def frame_key(event: Placed) -> FrameKey:
    return (event.path, event.function, event.line)


def break_key(event: GraphBreak) -> BreakKey:
    return (event.path, event.line, event.type, event.gb_id or "")


def frames(process: Process) -> dict[FrameKey, Frame]:
    """Every frame that was compiled or refused, by code object."""
    found: dict[FrameKey, Frame] = {}
    for event in process.events:
        if isinstance(event, (CompileStart, CompileEnd, Recompile, LimitHit)):
            frame = found.setdefault(frame_key(event), Frame(key=frame_key(event)))
            if isinstance(event, CompileStart):
                frame.starts.append(event)
            elif isinstance(event, CompileEnd):
                frame.ends.append(event)
            elif isinstance(event, Recompile):
                frame.recompiles.append(event)
            else:
                frame.limits.append(event)
    return found


def breaks_of_resume_frames(process: Process) -> dict[FrameKey, tuple[BreakKey, ...]]:
    """For each resume frame the breaks that can have made it; an empty tuple if none fits.

    A resume frame joins the break whose root frame has the same file and function and whose line there is LINE.
    """
    roots: dict[tuple[str, str, int], list[BreakKey]] = defaultdict(list)
    compiled: dict[str | None, CompileStart] = {}
    for event in process.events:    # in order: after torch._dynamo.reset() compile ids begin anew
        if isinstance(event, CompileStart):
            compiled[event.compile_id] = event
        elif isinstance(event, GraphBreak):
            for root in _roots(event, compiled):
                if break_key(event) not in roots[root]:
                    roots[root].append(break_key(event))
    joined: dict[FrameKey, tuple[BreakKey, ...]] = {}
    for key in frames(process):
        resume = resume_of(key[1])
        if resume:
            joined[key] = tuple(roots.get((key[0], *resume), ()))
    return joined


def _roots(event: GraphBreak, compiled: dict[str | None, CompileStart]) -> list[tuple[str, str, int]]:
    """The lines of the break's stack that lie in the frame being compiled; all lines if that frame is unknown."""
    entries = [(e.path, e.function, e.line) for e in event.stack] or [(event.path, event.function, event.line or 0)]
    entries = [(path, (resume_of(name) or (name, 0))[0], line) for path, name, line in entries]
    start = compiled.get(event.compile_id)
    if start is None:
        return entries
    name = (resume_of(start.function) or (start.function, 0))[0]
    return [e for e in entries if e[:2] == (start.path, name)] or entries
