"""What a frame owes to the program: the torch.compile call that targets it, or the break that split it from its
caller.
"""

from torchtriage.diagnosis.compiles.eager import EagerFrames
from torchtriage.diagnosis.compiles.frames import Compile, CompileHistory, frame_key
from torchtriage.diagnosis.places import is_same_code, is_wrapped
from torchtriage.recording.events import CompileCall, GraphBreak, Placed
from torchtriage.recording.recording import Process
from torchtriage.text import original_function


def is_target(process: Process, event: Placed) -> bool:
    """Whether torch.compile was called on this very function; yes where the calls, or their targets, are unknown."""
    calls = list(process.of(CompileCall))
    if not calls or not all(call.target_path for call in calls) or is_wrapped(event):
        return True
    return bool(_targets(process, event)) and not _is_nested(process, event)


def target_name(process: Process, event: Placed) -> str:
    """The function that the user compiled, where the frame is only a decorator's wrapper around it; else empty."""
    names = _targets(process, event)
    return names.pop() if len(names) == 1 and not _is_nested(process, event) else ""


def call_behind(process: Process, compile_: Compile) -> CompileCall | None:
    """The torch.compile call whose result the program was calling; None if it was not observed.

    One function may be compiled by several calls, with several policies. Where the recording does not number them, it
    is the last call before the compile whose target the frame is. A frame that no call names belongs to the only call
    there is.
    """
    calls = [call for position, call in process.once(_positioned_calls) if position < compile_.position]
    number = compile_.start.call if compile_.start is not None else None
    running = [call for call in calls if number is not None and call.number == number]
    if running:
        return running[0]
    path, function, line = compile_.key
    name = original_function(function)
    exact = [c for c in calls if c.target_path == path and c.target_line == line and line is not None]
    named = [c for c in calls if c.target_path in (path, "") and c.target.rpartition(".")[2] == name]
    if exact or named:
        return (exact or named)[-1]
    places = {(c.path, c.line, c.dynamic) for c in calls}
    return calls[0] if len(places) == 1 else None


def _positioned_calls(process: Process) -> list[tuple[int, CompileCall]]:
    return [(position, event) for position, event in enumerate(process.events) if isinstance(event, CompileCall)]


def _targets(process: Process, event: Placed) -> set[str]:
    return {c.target for c in process.of(CompileCall) if (c.target_path, c.target_line) == (event.path, event.line)}


def _is_nested(process: Process, event: Placed) -> bool:
    """Whether the same code already runs above it: a decorator's wrapper serves every function that it decorates."""
    return any(is_same_code(process, event, entry) for entry in event.stack[:-1])


def break_behind(process: Process, event: Placed) -> GraphBreak | None:
    """The break because of which the frame was compiled apart from its caller; None if none is known.

    Dynamo compiles a function separately if the function itself has a break, or if a break left its caller to eager.
    Torch omits some callers from the stack of a frame: where no break fits, it is the last that left a frame to eager.
    """
    history = CompileHistory.of(process)
    split = _separate_compile(process, history, event)
    if split is None or split.start is None:
        return None
    earlier = [
        e for e in process.events[:split.position]
        if isinstance(e, GraphBreak) and history.generation_of(e) == split.generation
    ]
    eager = EagerFrames.of(process)
    callers = {(entry.path, entry.function) for entry in split.start.stack[:-1]}
    inside, above, whole = [], [], []
    for broken in earlier:
        path, function = eager.root(broken)
        if any(is_same_code(process, event, entry) for entry in broken.stack):
            inside.append(broken)
        if (path, original_function(function)) in callers:
            above.append(broken)
        if eager.is_whole(broken):
            whole.append(broken)
    candidates = inside or above or whole
    return candidates[-1] if candidates else None


def _separate_compile(process: Process, history: CompileHistory, event: Placed) -> Compile | None:
    """The first compile of the event's frame; its own compile where one wrapper serves several functions."""
    if _is_nested(process, event):
        return history.compile_of(event)
    frame = history.frames.get(frame_key(event))
    if frame is None:
        return None
    started = [compile_ for compile_ in frame.compiles if compile_.start is not None]
    own = [compile_ for compile_ in started if compile_.generation == history.generation_of(event)]
    return next(iter(own or started), None)
