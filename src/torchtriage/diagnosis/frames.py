"""What happened to each compiled frame: its compiles, recompiles and limits, and the break that a resume frame comes from."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchtriage.diagnosis.once import once
from torchtriage.diagnosis.places import resume_of
from torchtriage.recording.events import CompileEnd, CompileStart, GraphBreak, LimitHit, Placed, Recompile, StackEntry
from torchtriage.recording.recording import Process

FrameKey = tuple[str, str, int | None]      # path, function, first line
BreakKey = tuple[str, int | None, str]       # path, line, type


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
    """A place and a type; torch looks up the GB id by the type, and 2.9 leaves it out of some of a break's messages."""
    return (event.path, event.line, event.type or event.gb_id or "")


@once
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


@once
def breaks_of_resume_frames(process: Process) -> dict[FrameKey, tuple[BreakKey, ...]]:
    """For each resume frame the breaks that can have made it; an empty tuple if none fits.

    A resume frame joins the break whose root frame has the same file and function and whose line there is LINE.
    """
    by_root: dict[tuple[str, str, int], list[BreakKey]] = defaultdict(list)
    compiled: dict[str | None, CompileStart] = {}
    alike: dict[BreakKey, dict[tuple[StackEntry, ...], GraphBreak]] = defaultdict(dict)
    for broken in process.of(GraphBreak):
        alike[break_key(broken)].setdefault(broken.stack, broken)
    for event in process.events:    # in order: after torch._dynamo.reset() compile ids begin anew
        if isinstance(event, CompileStart):
            compiled[event.compile_id] = event
        elif isinstance(event, GraphBreak):
            # Torch leaves the frame itself out of some stacks; another time that it met the break has the line.
            start = compiled.get(event.compile_id)
            told = (roots(e, start) for e in (event, *alike[break_key(event)].values()))
            for root in next((found for found in told if start is None or found[0][:2] == _name(start)), roots(event, start)):
                if break_key(event) not in by_root[root]:
                    by_root[root].append(break_key(event))
    joined: dict[FrameKey, tuple[BreakKey, ...]] = {}
    for key in frames(process):
        resume = resume_of(key[1])
        if resume:
            joined[key] = tuple(by_root.get((key[0], *resume), ()))
    return joined


def roots(event: GraphBreak, start: CompileStart | None) -> list[tuple[str, str, int]]:
    """The lines of the break's stack that lie in the frame whose compile began so; all lines if that frame is unknown."""
    entries = [(e.path, e.function, e.line) for e in event.stack] or [(event.path, event.function, event.line or 0)]
    entries = [(path, (resume_of(name) or (name, 0))[0], line) for path, name, line in entries]
    if start is None:
        return entries
    return [e for e in entries if e[:2] == _name(start)] or entries


def _name(start: CompileStart) -> tuple[str, str]:
    return start.path, (resume_of(start.function) or (start.function, 0))[0]
