"""Graph breaks: one finding for each place and cause, with the frames that it drew in."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.break_causes import Cause, classify
from torchtriage.diagnosis.break_costs import MAX_LISTED, NOTHING_FOLDED, Folded, cost_of, folded_frames
from torchtriage.diagnosis.break_eager import EagerFrame, FrameHistory, eager_frames, why_uncut
from torchtriage.diagnosis.break_seen import short_place
from torchtriage.diagnosis.break_types import plain_type
from torchtriage.diagnosis.frames import BreakKey, break_key
from torchtriage.diagnosis.once import once
from torchtriage.diagnosis.places import Place, code_at, locate, owner_at, qualified_name, resume_of, source_lines
from torchtriage.diagnosis.rules import finding, rule
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import fingerprint, portable_path
from torchtriage.findings.model import YOU, Evidence, Finding, Fix, Location, OwnerKind, Severity
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process

MAX_TITLE = 100
MAX_EXPLANATION = 200
MAX_STEPS = 50

UNCUTTABLE = "TT119"
# These never leave a place to cut, with or without a block around them, so the cause names the finding and not the block.
NEVER_CUT = frozenset({"TT111", "TT113", "TT115", "TT117", "TT120", "TT122", "TT124"})
BACKEND_FAILED = "GB0219"   # the graph was cut well enough; it could not be compiled

# Disabling one of these would send the whole model to eager, which is worse than the break.
TOO_MUCH_TO_DISABLE = frozenset({"forward", "__call__", "wrapper", "wrapped", "inner", "new_forward"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One break: its events, its place, its cause, and the frames that it sent to eager."""

    events: Sequence[GraphBreak]
    place: Place
    own: Location
    told: StackEntry    # the line that a person can change, and the name of its function
    function: str
    cause: Cause
    eager: tuple[EagerFrame, ...]
    folded: Folded

    @property
    def code(self) -> str:
        is_cut = not self.eager or self.cause.code in NEVER_CUT or self.events[0].gb_id == BACKEND_FAILED
        return self.cause.code if is_cut else UNCUTTABLE


@rule
def graph_breaks(process: Process) -> Iterator[Finding]:
    """Every distinct break, with the cause that can be told and what to change."""
    return (finding for _, finding in told_breaks(process))


@once
def told_breaks(process: Process) -> list[tuple[Break, Finding]]:
    """Every distinct break and its finding."""
    groups: dict[BreakKey, list[GraphBreak]] = {}
    failed = {e.compile_id for e in process.of(GraphBreak) if e.gb_id == BACKEND_FAILED and e.line is not None}
    for event in process.of(GraphBreak):
        # Torch traces the error of a failed backend first, and then the break that it makes of it.
        if event.compile_id not in failed or event.gb_id or not event.type.startswith("torch._subclasses.fake_tensor."):
            groups.setdefault(break_key(event), []).append(event)
    history = FrameHistory(process)
    folded = folded_frames(process)
    repeats: Counter[str] = Counter()
    told = []
    for key, events in groups.items():
        found = _break(process, events, history, folded.get(key, NOTHING_FOLDED))
        mark = _fingerprint(process, found, "")
        told.append((found, _finding(process, found, _fingerprint(process, found, " again" * repeats[mark]))))
        repeats[mark] += 1
    return told


def _break(process: Process, events: Sequence[GraphBreak], history: FrameHistory, folded: Folded) -> Break:
    # Torch leaves some frames out of some stacks, so the one with most lines of the user's is taken.
    event = max(events, key=lambda e: (bool(e.explanation), bool(e.stack), bool(e.gb_id), _num_yours(process, e)))
    place = locate(process, event)
    told = _telling_entry(process, event)
    function = qualified_name(process, told)
    return Break(
        events=events, place=place, own=place.raised_at or place.location, told=told, function=function,
        cause=classify(event, code_at(process, told)), eager=eager_frames(history, events), folded=folded,
    )


def _num_yours(process: Process, event: GraphBreak) -> int:
    return sum(owner_at(entry, process.facts) == YOU for entry in event.stack)


def _telling_entry(process: Process, event: GraphBreak) -> StackEntry:
    """The line nearest to the break that is not torch's or the standard library's; they only carry out what it asks."""
    own = StackEntry(path=event.path, line=event.line or 0, function=event.function)
    for entry in reversed(event.stack or (own,)):
        if owner_at(entry, process.facts).kind not in (OwnerKind.TORCH, OwnerKind.PYTHON):
            return entry
    return event.stack[-1] if event.stack else own


def _finding(process: Process, found: Break, mark: str) -> Finding:
    compile_ids = tuple(dict.fromkeys(e.compile_id for e in found.events if e.compile_id is not None))
    steps = sorted({e.step for e in found.events if e.step is not None})
    return finding(
        found.code, title=_title(found), cause=_cause(found), fix=_fix(found), severity=_severity(found),
        location=found.place.location, raised_at=found.place.raised_at, owner=found.place.owner,
        upstream=next((e.gb_id for e in found.events if e.gb_id), None), cost=cost_of(process, found.folded, compile_ids),
        evidence=_evidence(process, found, compile_ids), verification=_verification(found),
        ranks=_ranks(process, found.events), steps=tuple(steps[:MAX_STEPS]), fingerprint=mark,
    )


def _severity(found: Break) -> Severity:
    """P1 if the compiled function itself runs eager; a helper below it that runs eager weighs less."""
    default = catalogue_rule(found.code).severity
    if not found.eager or found.cause.code == "TT120":
        return default
    if found.eager[0].is_outermost:
        return min(default, Severity.P1)
    return Severity.P2 if found.code == UNCUTTABLE else default


def _title(found: Break) -> str:
    owner = found.place.owner
    library = f" ({owner.name})" if owner.kind is OwnerKind.LIBRARY and owner.name else ""
    title = f"{found.cause.subject} breaks {found.function or 'the compiled function'}{library}"
    if found.eager:
        more = f" and {len(found.eager) - 1} more" if len(found.eager) > 1 else ""
        title = f"{found.cause.subject} sends {found.eager[0]}{more}{library} to eager"
    if len(title) > MAX_TITLE:
        title = title.replace(library, "", 1)   # the owner is told beside the place, too
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 3] + "..."


def _cause(found: Break) -> str:
    event = max(found.events, key=lambda e: (bool(plain_type(e.type)), bool(e.explanation)))
    explanation = re.sub(r" at 0x[0-9a-f]+", "", " ".join(event.explanation.split("\n\n", 1)[0].split()))
    if len(explanation) > MAX_EXPLANATION:
        explanation = explanation[: MAX_EXPLANATION - 3] + "..."
    text = ": ".join(part for part in (plain_type(event.type), explanation) if part) or "PyTorch gives no reason"
    if found.cause.note:
        text = f"{text}; {found.cause.note}"
    if found.code == UNCUTTABLE:
        first = found.eager[0] if found.eager else None
        text = f"{text}; {why_uncut(found.events, first.call if first else '')}, so {first or 'the frame'} runs eager"
    return text


def _fix(found: Break) -> Fix:
    if found.place.owner.kind is OwnerKind.LIBRARY:
        return Fix(text=_fix_from_outside(found))
    text = found.cause.remedy.full
    if found.code == UNCUTTABLE and found.cause.code != UNCUTTABLE:
        text = f"{text}; or, if it is in a loop, try or with block, move it out: then the graph is only cut there"
    return Fix(text=text)


def _fix_from_outside(found: Break) -> str:
    """What a user can do about a line in a library that is not theirs to edit."""
    remedy, owner = found.cause.remedy, found.place.owner
    where = short_place(found.told.path, found.told.line)
    if remedy.setting:
        caveat = f"; {remedy.caveat}" if remedy.caveat else ""
        return f"{remedy.setting} at start-up: the line is in {owner} ({where}){caveat}"
    module = portable_path(found.told.path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    *scopes, name = found.function.split(".")
    # A function inside a function has no name that can be reached from outside; classes are told by their capital letter.
    is_nested = any(not scope.lstrip("_")[:1].isupper() for scope in scopes)
    if name in TOO_MUCH_TO_DISABLE or is_nested or not name.isidentifier():
        keep_out = f"compile only the parts that do not reach {module}"
    else:
        keep_out = f"keep Dynamo out with torch.compiler.disable on {module}.{found.function} (one break is left, at its call)"
    return (
        f"the line is in {owner} ({where}): change the argument that leads there, upgrade, or {keep_out};"
        f" the change in the library would be: {remedy.full}"
    )


def _evidence(process: Process, found: Break, compile_ids: tuple[str, ...]) -> Evidence:
    notes = list(found.folded.notes())
    if found.code != found.cause.code:
        notes.append(f"underlying rule: {found.cause.code} {catalogue_rule(found.cause.code).slug}")
    notes.extend(f"{frame} runs eager" for frame in found.eager[:MAX_LISTED])
    reasons = dict.fromkeys(" ".join(e.reason.split())[:500] for e in found.events if e.reason)
    return Evidence(
        num_events=len(found.events), compile_ids=compile_ids[:MAX_LISTED], reasons=tuple(reasons)[:3],
        folded=found.folded.lines(), source=source_lines(process, found.own), notes=tuple(notes),
    )


def _verification(found: Break) -> tuple[str, ...]:
    checks = [f"0 graph breaks at {short_place(found.own.path, found.own.line)} in the next recording"]
    checks.extend(f"{frame} no longer runs eager" for frame in found.eager[:3])
    checks.extend(f"0 compiles of {frame.function}" for frame in found.folded.own[:3])
    return tuple(checks)


def _ranks(process: Process, events: Sequence[GraphBreak]) -> tuple[int, ...]:
    ranks = {e.rank for e in events if e.rank is not None}
    if not ranks and process.rank is not None:
        ranks = {process.rank}
    return tuple(sorted(ranks))


def _fingerprint(process: Process, found: Break, repeat: str) -> str:
    """By the line that breaks, not the user's line above it: one call into a library can meet many breaks."""
    event = found.events[0]
    path = portable_path(event.path, tuple(process.facts.get("your_roots") or ()))
    function = (resume_of(event.function) or (event.function, 0))[0]
    code = event.stack[-1].code if event.stack else ""
    line = code_at(process, StackEntry(path=event.path, line=event.line or 0, function=function, code=code))
    parts = (found.code, path, function, line, (event.type or event.gb_id or "") + repeat)
    # A file name that is not UTF-8 arrives with lone surrogates, which cannot be encoded.
    return fingerprint(*(part.encode("utf-8", "backslashreplace").decode() for part in parts))
