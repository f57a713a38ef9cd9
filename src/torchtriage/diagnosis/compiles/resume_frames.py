"""Which graph break made a resume frame: the frame in which Dynamo continues a function after a break."""

from collections import defaultdict

from torchtriage.diagnosis.compiles.frames import CompileHistory, FrameKey
from torchtriage.recording.events import CompileStart, GraphBreak, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import original_function, resume_of

BreakKey = tuple[str, int | None, str]      # path, line, type
Root = tuple[str, str, int]                 # path, function, line: where a break leaves the frame that is compiled


def break_key(event: GraphBreak) -> BreakKey:
    """A place and a type; torch looks up the GB id by the type, and 2.9 leaves it out of some of a break's messages."""
    return event.path, event.line, event.type or event.gb_id or ""


def breaks_of_resume_frames(process: Process) -> dict[FrameKey, tuple[BreakKey, ...]]:
    """For each resume frame the breaks that can have made it, worked out once; an empty tuple if none fits."""
    return process.once(_breaks_of_resume_frames)


def _breaks_of_resume_frames(process: Process) -> dict[FrameKey, tuple[BreakKey, ...]]:
    """A resume frame joins the breaks whose root has its file and function, and the line at which it resumes."""
    by_root = _breaks_by_root(process)
    joined: dict[FrameKey, tuple[BreakKey, ...]] = {}
    for key in CompileHistory.of(process).frames:
        resume = resume_of(key[1])
        if resume is not None:
            joined[key] = tuple(by_root.get((key[0], *resume), ()))
    return joined


def _breaks_by_root(process: Process) -> dict[Root, list[BreakKey]]:
    history = CompileHistory.of(process)
    distinct: dict[BreakKey, dict[tuple[StackEntry, ...], GraphBreak]] = defaultdict(dict)
    for event in process.of(GraphBreak):
        distinct[break_key(event)].setdefault(event.stack, event)
    by_root: dict[Root, list[BreakKey]] = defaultdict(list)
    for event in process.of(GraphBreak):
        key = break_key(event)
        compile_ = history.compile_of(event)
        start = compile_.start if compile_ is not None else None
        for root in _own_roots(event, start, list(distinct[key].values())):
            if key not in by_root[root]:
                by_root[root].append(key)
    return by_root


def _own_roots(event: GraphBreak, start: CompileStart | None, same_break: list[GraphBreak]) -> list[Root]:
    """The roots of a break; torch leaves the frame itself out of some stacks, and another event of it has the line."""
    for candidate in (event, *same_break):
        lines = roots(candidate, start)
        if start is None or lines[0][:2] == _name(start):
            return lines
    return roots(event, start)


def roots(event: GraphBreak, start: CompileStart | None) -> list[Root]:
    """The lines of the break's stack that are in the frame whose compile started so; all lines if it is unknown."""
    entries = event.stack or (StackEntry(path=event.path, line=event.line or 0, function=event.function),)
    lines = [(entry.path, original_function(entry.function), entry.line) for entry in entries]
    if start is None:
        return lines
    return [line for line in lines if line[:2] == _name(start)] or lines


def _name(start: CompileStart) -> tuple[str, str]:
    return start.path, original_function(start.function)
