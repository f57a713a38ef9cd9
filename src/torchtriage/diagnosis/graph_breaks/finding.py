"""TT1xx: graph breaks, one finding for each place with its cause."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.eager import EagerFrame, EagerFrames, why_uncut
from torchtriage.diagnosis.compiles.frames import CompileHistory
from torchtriage.diagnosis.compiles.resume_frames import BreakKey, break_key
from torchtriage.diagnosis.compiles.targets import is_target
from torchtriage.diagnosis.graph_breaks.cause import BACKEND_FAILED, UNCUTTABLE, Cause, classify, reported_code
from torchtriage.diagnosis.graph_breaks.cost import MAX_LISTED, NOTHING_FOLDED, FoldedFrames, cost_of, folded_frames
from torchtriage.diagnosis.graph_breaks.edits import BreakSite, break_edits, setting_edit
from torchtriage.diagnosis.graph_breaks.next_break import next_break
from torchtriage.diagnosis.graph_breaks.text import plain_type
from torchtriage.diagnosis.places import Place, code_at, locate, owner_at, qualified_name, source_lines
from torchtriage.diagnosis.rules import finding, rule
from torchtriage.diagnosis.statement import statement_at
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import fingerprint, portable_path
from torchtriage.findings.model import (
    YOU,
    Check,
    CheckKind,
    Edit,
    Evidence,
    Finding,
    Fix,
    Location,
    OwnerKind,
    Severity,
    SourceLine,
)
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import original_function, row, short_place, shortened

MAX_TITLE = 100
MAX_EXPLANATION = 200
MAX_STEPS = 50

# Disabling one of these would leave the entire model to eager, which is worse than the break.
TOO_MUCH_TO_DISABLE = frozenset({"forward", "__call__", "wrapper", "wrapped", "inner", "new_forward"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One break: its events, its place, its cause, the frames that it leaves to eager."""

    events: Sequence[GraphBreak]
    place: Place
    own: Location
    editable: StackEntry    # the line that a person can change
    function: str           # qualified name of the function of that line
    cause: Cause
    eager: tuple[EagerFrame, ...]
    folded: FoldedFrames
    is_in_step: bool            # whether torch itself cuts the optimizer's step, which was compiled alone
    next_line: int | None       # of the next break of a function that was left to eager, where the source shows it
    edits: tuple[Edit, ...] = ()

    @property
    def code(self) -> str:
        return reported_code(self.cause, self.events[0].gb_id, runs_eager=bool(self.eager))


@rule
def graph_breaks(process: Process) -> Iterator[Finding]:
    """Every distinct break with its cause and its fix."""
    return (finding for _, finding in break_findings(process))


def break_findings(process: Process) -> list[tuple[Break, Finding]]:
    """Every distinct break and its finding, worked out once."""
    return process.once(_break_findings)


def _break_findings(process: Process) -> list[tuple[Break, Finding]]:
    groups: dict[BreakKey, list[GraphBreak]] = {}
    history = CompileHistory.of(process)
    failed = set()
    for event in process.of(GraphBreak):
        if event.gb_id == BACKEND_FAILED and event.line is not None:
            failed.add((history.generation_of(event), event.compile_id))
    for event in process.of(GraphBreak):
        # Torch traces the error of a failed backend first, and then the break that it makes of it.
        is_echo = not event.gb_id and event.type.startswith("torch._subclasses.fake_tensor.")
        if not is_echo or (history.generation_of(event), event.compile_id) not in failed:
            groups.setdefault(break_key(event), []).append(event)
    folded = folded_frames(process)
    repeats: Counter[str] = Counter()
    findings = []
    for key, events in groups.items():
        broken = _break(process, events, folded.get(key, NOTHING_FOLDED))
        first = _fingerprint(process, broken, "")
        own = _fingerprint(process, broken, " again" * repeats[first])
        findings.append((broken, _finding(process, broken, own)))
        repeats[first] += 1
    return findings


def _break(process: Process, events: Sequence[GraphBreak], folded: FoldedFrames) -> Break:
    # Torch omits some frames from some stacks, so the event with the most lines of the user represents the break.
    event = max(events, key=lambda e: (bool(e.explanation), bool(e.stack), bool(e.gb_id), _num_yours(process, e)))
    place = locate(process, event)
    editable = _editable_line(process, event)
    statement = statement_at(process, editable.path, editable.line)
    cause = classify(event, code_at(process, editable), statement)
    eager = EagerFrames.of(process).behind(events)
    return Break(
        events=events, place=place, own=place.raised_at or place.location, editable=editable,
        function=qualified_name(process, editable), cause=cause, eager=eager, folded=folded,
        is_in_step=all(_is_in_step(process, each) for each in events),
        next_line=next_break(process, editable, cause.code, event.gb_id) if eager else None,
        edits=_edits(process, event, place, editable, cause),
    )


def _is_in_step(process: Process, event: GraphBreak) -> bool:
    """Whether torch cuts the beginning of an optimizer's step, and torch.compile was called on nothing but that."""
    if event.function != "_use_grad" or not event.path.endswith("torch/optim/optimizer.py"):
        return False
    start = CompileHistory.of(process).start_of(event)
    caller = _editable_line(process, event)
    is_of_optimizer = "/torch/optim/" in start.path
    is_compiled = is_of_optimizer or (start.path, start.function) == (caller.path, caller.function)
    if owner_at(caller, process.program) == YOU and is_compiled and _only_steps(process, caller):
        return True
    return is_of_optimizer and is_target(process, start)


def _only_steps(process: Process, line: StackEntry) -> bool:
    """Whether a line is the only statement of its function, and calls step() there."""
    statement = statement_at(process, line.path, line.line)
    function = statement.function if statement is not None else None
    return function is not None and len(function.body) == 1 and bool(statement and statement.calls("step"))


def _edits(
    process: Process, event: GraphBreak, place: Place, editable: StackEntry, cause: Cause,
) -> tuple[Edit, ...]:
    """The edits of the cause; of a line in a library only the setting, in the file of the user's line above it."""
    if owner_at(editable, process.program) != YOU:
        shown = place.location
        line = StackEntry(path=shown.path, line=shown.line or 0, function=shown.function or "")
        is_yours = owner_at(line, process.program) == YOU
        return (setting_edit(cause.remedy.setting, line),) if cause.remedy.setting and is_yours else ()
    statement = statement_at(process, editable.path, editable.line)
    if statement is None:
        return ()
    return break_edits(cause.code, BreakSite(
        process=process, event=event, line=editable, statement=statement, remedy=cause.remedy,
    ))


def _num_yours(process: Process, event: GraphBreak) -> int:
    return sum(owner_at(entry, process.program) == YOU for entry in event.stack)


def _editable_line(process: Process, event: GraphBreak) -> StackEntry:
    """The nearest line that is not in torch or the standard library, which only carry out what it asks for."""
    own = StackEntry(path=event.path, line=event.line or 0, function=event.function)
    for entry in reversed(event.stack or (own,)):
        if owner_at(entry, process.program).kind not in (OwnerKind.TORCH, OwnerKind.PYTHON):
            return entry
    return event.stack[-1] if event.stack else own


def _finding(process: Process, broken: Break, own_fingerprint: str) -> Finding:
    compile_ids = tuple(dict.fromkeys(e.compile_id for e in broken.events if e.compile_id is not None))
    steps = sorted({e.step for e in broken.events if e.step is not None})
    return finding(
        broken.code, title=_title(broken), cause=_cause(broken), fix=_fix(broken), severity=_severity(broken),
        location=broken.place.location, raised_at=broken.place.raised_at, owner=broken.place.owner,
        upstream=next((e.gb_id for e in broken.events if e.gb_id), None),
        cost=cost_of(process, broken.folded, compile_ids),
        evidence=_evidence(process, broken, compile_ids), verification=_verification(broken),
        ranks=_ranks(process, broken.events), steps=tuple(steps[:MAX_STEPS]), fingerprint=own_fingerprint,
    )


def _severity(broken: Break) -> Severity:
    """P1 if the compiled function itself runs eager; a helper that it calls counts less."""
    default = catalogue_rule(broken.code).severity
    if broken.is_in_step:
        return Severity.P4
    if not broken.eager or broken.cause.code == "TT120":
        return default
    if broken.eager[0].is_outermost:
        return min(default, Severity.P1)
    return Severity.P2 if broken.code == UNCUTTABLE else default


def _title(broken: Break) -> str:
    owner = broken.place.owner
    library = f" ({owner.name})" if owner.kind is OwnerKind.LIBRARY and owner.name else ""
    title = f"{broken.cause.subject} breaks {broken.function or 'the compiled function'}{library}"
    if broken.eager:
        title = f"{broken.cause.subject} sends {row(broken.eager, 1)}{library} to eager"
    if len(title) > MAX_TITLE:
        title = title.replace(library, "", 1)   # the report also names the owner beside the place
    return shortened(title, MAX_TITLE)


def _cause(broken: Break) -> str:
    event = max(broken.events, key=lambda e: (bool(plain_type(e.type)), bool(e.explanation)))
    explanation = re.sub(r" at 0x[0-9a-f]+", "", " ".join(event.explanation.split("\n\n", 1)[0].split()))
    explanation = shortened(explanation, MAX_EXPLANATION)
    text = ": ".join(part for part in (plain_type(event.type), explanation) if part) or "PyTorch gives no reason"
    if broken.cause.note:
        text = f"{text.removesuffix('.')}; {broken.cause.note}"
    if broken.code == UNCUTTABLE:
        first = broken.eager[0] if broken.eager else None
        reason = why_uncut(broken.events, first.call if first else "")
        text = f"{text.removesuffix('.')}; {reason}, so {first or 'the frame'} runs eager"
    return text


def _fix(broken: Break) -> Fix:
    if broken.is_in_step:
        return Fix(text=(
            "nothing to do: torch cuts the graph there, and compiles the rest of the step; with lr=torch.tensor(...) a "
            "scheduled lr does not recompile it"
        ), safe=True)
    if broken.place.owner.kind is OwnerKind.LIBRARY and not broken.cause.remedy.is_from_outside:
        return Fix(text=_fix_from_outside(broken), edits=broken.edits)
    text = broken.cause.remedy.full
    if broken.code == UNCUTTABLE and broken.cause.code != UNCUTTABLE and not broken.cause.remedy.is_exact:
        text = f"{text}; or, if it is in a loop, try or with block, move it out: then the graph is only cut there"
    if broken.next_line is not None:
        where = short_place(broken.editable.path, broken.next_line)
        text = f"{text}; if only this line is changed, {where} breaks next, in the same way"
    return Fix(text=text, edits=broken.edits)


def _fix_from_outside(broken: Break) -> str:
    """A fix for a line in a library, which the user does not edit."""
    remedy, owner = broken.cause.remedy, broken.place.owner
    where = short_place(broken.editable.path, broken.editable.line)
    if remedy.setting:
        caveat = f"; {remedy.caveat}" if remedy.caveat else ""
        return f"{remedy.setting} at start-up: the line is in {owner} ({where}){caveat}"
    module = portable_path(broken.editable.path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    *scopes, name = broken.function.split(".")
    # A function inside a function cannot be reached from outside; a capital letter marks a class.
    is_nested = any(not scope.lstrip("_")[:1].isupper() for scope in scopes)
    if name in TOO_MUCH_TO_DISABLE or is_nested or not name.isidentifier():
        keep_out = f"compile only the parts that do not reach {module}"
    else:
        keep_out = (
            f"exclude it with torch.compiler.disable on {module}.{broken.function} (one break remains, at its call)"
        )
    return (
        f"the line is in {owner} ({where}): change the argument that leads there, upgrade, or {keep_out};"
        f" the change in the library would be: {remedy.full}"
    )


def _evidence(process: Process, broken: Break, compile_ids: tuple[str, ...]) -> Evidence:
    notes = list(broken.folded.notes())
    if broken.code != broken.cause.code:
        notes.append(f"underlying rule: {broken.cause.code} {catalogue_rule(broken.cause.code).slug}")
    notes.extend(f"{frame} runs eager" for frame in broken.eager[:MAX_LISTED])
    reasons = dict.fromkeys(" ".join(e.reason.split())[:500] for e in broken.events if e.reason)
    return Evidence(
        num_events=len(broken.events), compile_ids=compile_ids[:MAX_LISTED], reasons=tuple(reasons)[:3],
        folded=broken.folded.lines(), source=_source(process, broken), notes=tuple(notes),
    )


def _source(process: Process, broken: Break) -> tuple[SourceLine, ...]:
    """The user's own line, where that is to be changed; else the line in a library that torch names."""
    of_the_user = source_lines(process, broken.place.location) if broken.place.owner.kind is OwnerKind.YOU else ()
    return of_the_user or source_lines(process, broken.own)


def _verification(broken: Break) -> tuple[Check, ...]:
    checks = [Check(CheckKind.NO_GRAPH_BREAK, place=Location(path=broken.own.path, line=broken.own.line))]
    for frame in broken.eager[:3]:
        kind = CheckKind.REST_NOT_EAGER if frame.is_rest else CheckKind.NOT_EAGER
        checks.append(Check(kind, frame.function or "the compiled function"))
    for resumed in broken.folded.own[:3]:
        checks.append(Check(CheckKind.NO_RESUME_FUNCTION, resumed.function))
    return tuple(checks)


def _ranks(process: Process, events: Sequence[GraphBreak]) -> tuple[int, ...]:
    ranks = {e.rank for e in events if e.rank is not None}
    if not ranks and process.rank is not None:
        ranks = {process.rank}
    return tuple(sorted(ranks))


def _fingerprint(process: Process, broken: Break, repeat: str) -> str:
    """By the line that breaks, not the user's line above it: one call into a library can meet many breaks."""
    event = broken.events[0]
    path = portable_path(event.path, process.program.your_roots)
    function = original_function(event.function)
    code = event.stack[-1].code if event.stack else ""
    line = code_at(process, StackEntry(path=event.path, line=event.line or 0, function=function, code=code))
    parts = (broken.code, path, function, line, (event.type or event.gb_id or "") + repeat)
    # A file name that is not UTF-8 arrives with lone surrogates, which cannot be encoded.
    return fingerprint(*(part.encode("utf-8", "backslashreplace").decode() for part in parts))
