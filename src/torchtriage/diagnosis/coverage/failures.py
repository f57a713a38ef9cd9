"""TT304, TT305, TT308: compiles that fail, whether the error is suppressed or reaches the caller."""

import re
from collections.abc import Iterator
from dataclasses import replace

from torchtriage.diagnosis.compiles.frames import CompileHistory, FrameKey, frame_key
from torchtriage.diagnosis.frameworks import framework_of
from torchtriage.diagnosis.graph_breaks.branches import branch_options
from torchtriage.diagnosis.graph_breaks.cause import classify
from torchtriage.diagnosis.graph_breaks.edits import BreakSite, break_edits
from torchtriage.diagnosis.graph_breaks.values import SCALARS, read_options
from torchtriage.diagnosis.places import Place, code_at, frame_name, locate, owner_at
from torchtriage.diagnosis.rules import finding, placed_fields, rule
from torchtriage.diagnosis.statement import statement_at
from torchtriage.findings.model import Check, CheckKind, Edit, Evidence, Finding, Fix, OwnerKind, Severity
from torchtriage.recording.events import CompileCall, CompileEnd, CompileStart, FrameSkipped, GraphBreak, Placed
from torchtriage.recording.recording import Process
from torchtriage.text import short_place, shortened

# Ctrl-C and sys.exit() may interrupt a compile; they are not its errors.
_NOT_AN_ERROR = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
MAX_LINES = 3   # of an error's message: torch names the failed part in the second or third
_SECTION = re.compile(r"^ {0,2}(Explanation|Hint|Developer debug context): ?", re.M)
_GB_ID = re.compile(r"/(gb\d{4})\.html", re.IGNORECASE)


@rule
def compile_failed(process: Process) -> Iterator[Finding]:
    """A compile failed, the error was suppressed, and the function runs eager."""
    reported: set[tuple[FrameKey, str]] = set()
    history = CompileHistory.of(process)
    for end in process.of(CompileEnd):
        if not end.fail_type or end.fail_type == "Unsupported" or not end.suppress_errors:
            continue
        start = history.start_of(end)
        key = (frame_key(start), end.fail_type)
        if key in reported:
            continue
        reported.add(key)
        place = locate(process, _failed_at(start, end))
        name = frame_name(locate(process, start), start)
        yield finding(
            "TT304", title=f"compiling {name} failed with {end.fail_type} and it runs eager",
            cause=f"{_message(end)}{_at_line(process, place, end)}",
            fix=Fix(text=(
                f"{_fix(process, end, name, place)}; unset torch._dynamo.config.suppress_errors, which hid the error"
            )),
            evidence=_evidence(end),
            verification=(Check(CheckKind.NO_FAILED_COMPILE, name),),
            **placed_fields(place, "TT304", end.fail_type, process, end),
        )


@rule
def errors_suppressed(process: Process) -> Iterator[Finding]:
    """suppress_errors is set: every compile error turns into silent eager execution."""
    first = next((e for e in process.of(CompileEnd) if e.suppress_errors), None)
    if first is None:
        return
    place = locate(process, CompileHistory.of(process).start_of(first))
    yield finding(
        "TT305", title="torch._dynamo.config.suppress_errors is set: a failed compile runs eager silently",
        cause="suppress_errors turns every compile error into eager execution; it fixes no graph break and hides real "
              "bugs",
        fix=Fix(text=(
            "remove torch._dynamo.config.suppress_errors = True (or TORCHDYNAMO_SUPPRESS_ERRORS=1) "
            "and fix the errors that then appear"
        )),
        evidence=Evidence(num_events=1), verification=(Check(CheckKind.ERRORS_NOT_SUPPRESSED),),
        **placed_fields(place, "TT305", "", process, first),
    )


_MARKED = re.compile(
    r"You marked L\['(?P<name>\w+)'\](?P<part>.*)\.size\(\)\[(?P<dim>\d+)\] as dynamic but your code specialized it "
    r"to be a constant \((?P<size>\d+)\)"
)


@rule
def compile_raised(process: Process) -> Iterator[Finding]:
    """A compile failed and nothing caught its error, so the compiled function cannot be called."""
    reported: set[tuple[FrameKey, str]] = set()
    history = CompileHistory.of(process)
    last_start = max((e.time for e in process.of(CompileStart)), default=0.0)
    for end in process.of(CompileEnd):
        if not _raised(process, end):
            continue
        start = history.start_of(end)
        key = (frame_key(start), str(end.fail_type))
        if key in reported:
            continue
        reported.add(key)
        place = locate(process, _failed_at(start, end))
        name = frame_name(locate(process, start), start)
        at = f" at {short_place(end.stack[-1].path, end.stack[-1].line)}" if end.stack else ""
        yield finding(
            "TT308", title=f"compiling {name} failed with {end.fail_type}, and the call raised it",
            cause=f"{_message(end)}{at}",
            fix=Fix(text=_fix(process, end, name, place), edits=_edits(process, end)),
            severity=Severity.P1 if end.time < last_start else Severity.P0,     # a later compile: the program survived
            evidence=_evidence(end),
            verification=(Check(CheckKind.NO_FAILED_COMPILE, name),),
            **placed_fields(place, "TT308", str(end.fail_type), process, end),
        )


def _failed_at(start: Placed, end: CompileEnd) -> Placed:
    """The start of the compile, moved to the line at which it failed if torch reports that line."""
    if not end.stack:
        return start
    line = end.stack[-1]
    return replace(start, path=line.path, line=line.line, function=line.function, stack=(*start.stack, *end.stack))


def _raised(process: Process, end: CompileEnd) -> bool:
    """An unsupported construct is an error only under fullgraph=True; else the graph is cut or the frame runs eager."""
    if not end.fail_type or end.suppress_errors or end.fail_type in _NOT_AN_ERROR:
        return False
    if end.fail_type != "Unsupported":
        return True
    history = CompileHistory.of(process)
    compile_ = history.compile_of(end)
    was_cut = compile_ is not None and bool(compile_.breaks)
    was_skipped = any(frame_key(e) == frame_key(history.start_of(end)) for e in process.of(FrameSkipped))
    return not was_cut and not was_skipped and any(call.fullgraph for call in process.of(CompileCall))


def _message(end: CompileEnd) -> str:
    lines = []
    for line in (end.fail_reason or "").splitlines():
        if line.lstrip().startswith("Hint: "):
            break       # the fix says what to change
        lines.append(" ".join(line.split()).removeprefix("Explanation: ").rstrip(":"))
    text = ": ".join([line for line in lines if line][:MAX_LINES])
    return shortened(text, 300) or f"{end.fail_type} without a message"


def _evidence(end: CompileEnd) -> Evidence:
    reasons = ((end.fail_reason or "")[:500],)
    return Evidence(num_events=1, compile_ids=(end.compile_id or "",), reasons=reasons)


def _at_line(process: Process, place: Place, end: CompileEnd) -> str:
    """The line that a person can change: torch and the standard library only do what the user's line asks."""
    if not end.stack:
        return ""
    carried_out = owner_at(end.stack[-1], process.program).kind in (OwnerKind.TORCH, OwnerKind.PYTHON)
    line = place.location if carried_out else end.stack[-1]
    return f" at {short_place(line.path, line.line)}"


def _fix(process: Process, end: CompileEnd, name: str, place: Place) -> str:
    at = _at_line(process, place, end)
    framework = framework_of(end.stack)
    if framework is not None:
        return framework.remedy
    if end.fail_type == "Unsupported":
        return f"{_remedy(process, end, at)}; or drop fullgraph=True, so that the graph is cut there instead of failing"
    if end.fail_type == "BackendCompilerFailed":
        return "try backend='aot_eager', then 'eager', to see which layer fails: the backend's own error is the cause"
    if end.fail_type == "TorchRuntimeError":
        return (
            f"run {name} without torch.compile: if it fails there too, fix the shapes{at}; "
            "if not, the operator's fake kernel is wrong"
        )
    if end.fail_type == "RecompileError":
        return (
            "torch._dynamo.config.error_on_recompile is set: keep the values in the message the same "
            f"in every call of {name}, or unset it"
        )
    marked = _MARKED.search(end.fail_reason or "")
    if marked:
        return (
            f"torch._dynamo.maybe_mark_dynamic instead of mark_dynamic on {marked['name']}{marked['part']}, dimension "
            f"{marked['dim']}, or no mark: the code needs this size to be {marked['size']}"
        )
    if _ON_DATA.search(end.fail_reason or ""):
        return _without_guard(process, place, at)
    work = f"the work that fails{at}" if at else "the work that the end of the traceback shows"
    disabled = ", or decorate the function that does it with torch.compiler.disable"
    may_cut = not any(call.fullgraph for call in process.of(CompileCall))
    return f"do {work} before the compiled call{disabled if may_cut else ''}"


_ON_DATA = re.compile(r"data-dependent expression|GuardOnDataDependentSymNode")


def _without_guard(process: Process, place: Place, at: str) -> str:
    """A number from a tensor was captured in the graph, and the code tests it there."""
    line = place.location
    statement = statement_at(process, line.path, line.line or 0)
    where = short_place(line.path, line.line)
    options = read_options(statement, where) or branch_options(statement, where)
    options = [option for option in options if option != SCALARS]       # the number is captured already
    if options:
        return "; or ".join(options)
    return (
        f"keep the value a tensor{at}, and select with torch.where in place of a test; or test it before the compiled "
        "call"
    )


def _remedy(process: Process, end: CompileEnd, at: str) -> str:
    """The remedy for the graph break that fullgraph=True made an error."""
    broken = _as_break(end)
    if broken is None:
        return f"change the line{at}"
    line = broken.stack[-1]
    statement = statement_at(process, line.path, line.line)
    return classify(broken, code_at(process, line), statement).remedy.full


def _edits(process: Process, end: CompileEnd) -> tuple[Edit, ...]:
    """The edits for that break; only those at its own line, as the callers are not in the text of an error."""
    broken = _as_break(end) if end.fail_type == "Unsupported" else None
    line = broken.stack[-1] if broken is not None else None
    statement = statement_at(process, line.path, line.line) if line is not None else None
    if broken is None or line is None or statement is None or owner_at(line, process.program).kind is not OwnerKind.YOU:
        return ()
    cause = classify(broken, code_at(process, line), statement)
    site = BreakSite(process=process, event=broken, line=line, statement=statement, remedy=cause.remedy)
    return break_edits(cause.code, site)


def _as_break(end: CompileEnd) -> GraphBreak | None:
    """The break in the text of an error; None if torch does not report its line."""
    if not end.stack or not end.fail_reason:
        return None
    kind, *sections = _SECTION.split(end.fail_reason)
    texts: dict[str, list[str]] = {}
    for name, text in zip(sections[::2], sections[1::2], strict=False):
        texts.setdefault(name, []).append(" ".join(text.split("\n\n")[0].split()))
    gb_id = _GB_ID.search(end.fail_reason)
    return GraphBreak(
        path=end.stack[-1].path, line=end.stack[-1].line, function=end.stack[-1].function, stack=end.stack,
        gb_id=gb_id[1].upper() if gb_id else None, type=kind.strip(),
        explanation=" ".join(texts.get("Explanation", [])),
        hints=tuple(texts.get("Hint", [])), context=" ".join(texts.get("Developer debug context", [])),
    )
