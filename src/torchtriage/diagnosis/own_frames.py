"""Why a function that nobody asked to compile is a frame of its own: the graph break that keeps it out of its caller's graph."""

from torchtriage.diagnosis.break_eager import FrameHistory
from torchtriage.diagnosis.frames import frame_key
from torchtriage.diagnosis.once import once
from torchtriage.diagnosis.places import is_wrapped, resume_of
from torchtriage.recording.events import CompileCall, CompileStart, GraphBreak, Placed
from torchtriage.recording.recording import Process

_history = once(FrameHistory)


def is_target(process: Process, event: Placed) -> bool:
    """Whether torch.compile was called on this very function; yes where the calls, or their targets, are not known."""
    calls = list(process.of(CompileCall))
    known = bool(calls) and all(call.target_path for call in calls)
    return not known or is_wrapped(event) or (bool(_targets(process, event)) and not _is_nested(event))


def target_name(process: Process, event: Placed) -> str:
    """The function that the user compiled, where the frame is only a decorator's wrapper around it; empty if that is not sure."""
    names = _targets(process, event)
    return names.pop() if len(names) == 1 and not _is_nested(event) else ""


def _targets(process: Process, event: Placed) -> set[str]:
    return {c.target for c in process.of(CompileCall) if (c.target_path, c.target_line) == (event.path, event.line)}


def _is_nested(event: Placed) -> bool:
    """Whether the same code runs above it already: a decorator's wrapper serves every function that it decorates."""
    return (event.path, event.function) in {(entry.path, entry.function) for entry in event.stack[:-1]}


def break_behind(process: Process, event: Placed) -> GraphBreak | None:
    """The break because of which the frame was compiled apart from its caller; None if none can be told.

    Dynamo compiles a function apart if it holds a break itself, or if a break sent its caller to eager. Torch leaves out some
    callers in the stack of a frame, so where none fits, the last break that sent any frame to eager is taken.
    """
    any_time = not _is_nested(event)
    starts = (
        (n, e) for n, e in enumerate(process.events)
        if isinstance(e, CompileStart) and frame_key(e) == frame_key(event) and (any_time or e.compile_id == event.compile_id)
    )
    number, start = next(starts, (0, None))
    if start is None:
        return None
    earlier = [e for e in process.events[:number] if isinstance(e, GraphBreak)]
    callers = {(entry.path, entry.function) for entry in start.stack[:-1]}
    history = _history(process)
    inside = [b for b in earlier if (event.path, event.function) in {(e.path, e.function) for e in b.stack}]
    above = [b for b in earlier if _origin(history.root(b)) in callers]
    return next((found[-1] for found in (inside, above, [b for b in earlier if history.is_whole(b)]) if found), None)


def _origin(name: tuple[str, str]) -> tuple[str, str]:
    path, function = name
    return path, (resume_of(function) or (function, 0))[0]
