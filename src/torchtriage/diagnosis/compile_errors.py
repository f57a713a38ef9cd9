"""TT308: a compile raised an error, and the call of the compiled function failed with it."""

from collections.abc import Iterator
from dataclasses import replace

from torchtriage.diagnosis.break_seen import short_place
from torchtriage.diagnosis.coverage import fields_of, started
from torchtriage.diagnosis.places import Place, frame_name, locate, owner_at
from torchtriage.diagnosis.rules import finding, rule
from torchtriage.findings.model import Evidence, Finding, Fix, OwnerKind, Severity
from torchtriage.recording.events import CompileCall, CompileEnd, CompileStart, FrameSkipped, GraphBreak, Placed
from torchtriage.recording.recording import Process

# Ctrl-C and sys.exit() pass through a compile without being its fault.
_NOT_AN_ERROR = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
MAX_LINES = 3   # of an error's message: torch puts what failed into the second or third


@rule
def compile_raised(process: Process) -> Iterator[Finding]:
    """A compile failed and nothing caught its error, so the compiled function cannot be called."""
    seen: set[tuple[str, str, str]] = set()
    starts = started(process)
    last_start = max((e.time for e in process.of(CompileStart)), default=0.0)
    for end in process.of(CompileEnd):
        key = (end.path, end.function, str(end.fail_type))
        if key in seen or not _raised(process, end):
            continue
        seen.add(key)
        start = starts.get(end.compile_id, end)
        place = locate(process, _failed_at(start, end))
        name = frame_name(locate(process, start), start)
        at = f" at {short_place(end.stack[-1].path, end.stack[-1].line)}" if end.stack else ""
        yield finding(
            "TT308", title=f"compiling {name} failed with {end.fail_type}, and the call raised it",
            cause=f"{_message(end)}{at}", fix=Fix(text=_fix(str(end.fail_type), name, _told_at(process, place, end))),
            severity=Severity.P1 if end.time < last_start else Severity.P0,     # what compiles again lives on
            evidence=Evidence(num_events=1, compile_ids=(end.compile_id or "",), reasons=((end.fail_reason or "")[:500],)),
            verification=(f"no failed compile of {name} in the next recording",),
            **fields_of(place, "TT308", str(end.fail_type), process, end),
        )


def _failed_at(start: Placed, end: CompileEnd) -> Placed:
    """The start of the compile, moved to the line at which it failed, where torch tells it."""
    if not end.stack:
        return start
    line = end.stack[-1]
    return replace(start, path=line.path, line=line.line, function=line.function, stack=(*start.stack, line))


def _raised(process: Process, end: CompileEnd) -> bool:
    """An unsupported construct is an error only under fullgraph=True; else the graph is cut or the frame runs eager."""
    if not end.fail_type or end.suppress_errors or end.fail_type in _NOT_AN_ERROR:
        return False
    if end.fail_type != "Unsupported":
        return True
    went_on = any(e.compile_id == end.compile_id for e in process.of(GraphBreak)) or any(
        (e.path, e.function) == (end.path, end.function) for e in process.of(FrameSkipped))
    return not went_on and any(call.fullgraph for call in process.of(CompileCall))


def _message(end: CompileEnd) -> str:
    lines = [" ".join(line.split()).removeprefix("Explanation: ").rstrip(":") for line in (end.fail_reason or "").splitlines()]
    return ": ".join([line for line in lines if line][:MAX_LINES])[:300] or f"{end.fail_type} without a message"


def _told_at(process: Process, place: Place, end: CompileEnd) -> str:
    """The line that a person can change: torch and the standard library only carry out what the user's line asks."""
    if not end.stack:
        return ""
    carried_out = owner_at(end.stack[-1], process.facts).kind in (OwnerKind.TORCH, OwnerKind.PYTHON)
    line = place.location if carried_out else end.stack[-1]
    return f" at {short_place(line.path, line.line)}"


def _fix(fail_type: str, name: str, at: str) -> str:
    if fail_type == "Unsupported":
        return f"change the line{at}; or drop fullgraph=True, and the graph is cut there instead of failing"
    if fail_type == "BackendCompilerFailed":
        return "try backend='aot_eager', then 'eager', to see which layer fails: the backend's own error is the cause"
    if fail_type == "TorchRuntimeError":
        return f"run {name} without torch.compile: if it fails there too, fix the shapes{at}; if not, the operator's fake kernel is wrong"
    if fail_type == "RecompileError":
        return f"torch._dynamo.config.error_on_recompile is set: keep what it names the same in every call of {name}, or unset it"
    what = f"what fails{at}" if at else "what the end of the traceback names"
    return (
        f"do {what} before the compiled call, or mark the function that does it with torch.compiler.disable; "
        f"torch._dynamo.config.suppress_errors = True runs {name} eager instead, and hides later errors too"
    )
