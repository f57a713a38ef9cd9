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
    return not known or is_wrapped(event) or any((c.target_path, c.target_line) == (event.path, event.line) for c in calls)


def break_behind(process: Process, event: Placed) -> GraphBreak | None:
    """The break because of which the frame was first compiled apart from its caller; None if none can be told.

    Dynamo compiles a function apart if it holds a break itself, or if a break sent its caller to eager. Torch leaves out some
    callers in the stack of a frame, so where none fits, the last break that sent any frame to eager is taken.
    """
    earlier: list[GraphBreak] = []
    start = None
    for start in process.events:
        if isinstance(start, GraphBreak):
            earlier.append(start)
        if isinstance(start, CompileStart) and frame_key(start) == frame_key(event):
            break
    if not isinstance(start, CompileStart):
        return None
    callers = {(entry.path, entry.function) for entry in start.stack[:-1]}
    history = _history(process)
    inside = [b for b in earlier if (event.path, event.function) in {(e.path, e.function) for e in b.stack}]
    above = [b for b in earlier if _origin(history.root(b)) in callers]
    return next((found[-1] for found in (inside, above, [b for b in earlier if history.is_whole(b)]) if found), None)


def _origin(name: tuple[str, str]) -> tuple[str, str]:
    path, function = name
    return path, (resume_of(function) or (function, 0))[0]
