"""The compiled functions of a process, each with its compiles, the values they were compiled for, its graph pieces."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from torchtriage.diagnosis.compiles.frames import Compile, CompileHistory, FrameKey, compile_seconds, frame_key
from torchtriage.diagnosis.compiles.resume_frames import Root, break_key, roots
from torchtriage.diagnosis.history.finding_index import FindingIndex
from torchtriage.diagnosis.history.timeline import after, one_line
from torchtriage.diagnosis.places import is_wrapped, locate, qualified_name
from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, parse_reason, readable
from torchtriage.findings.history import CompileEntry, FrameHistory, Link
from torchtriage.findings.model import Location
from torchtriage.recording.events import FrameSkipped, LimitHit, Placed, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import resume_of

MAX_COMPILES = 200      # per frame: as many from the beginning as from the end
MAX_VALUES = 32         # per compile
MAX_GUARDS = 8          # per compile, newest cache entry first: as many as the default recompile limit allows
MAX_LINKS = 200         # per function
MAX_TEXT = 300
RUNS_EAGER = "runs eager"

_PART = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_STACK = re.compile(r"\n[\s-]*user stack", re.IGNORECASE)
_GUARDED = {
    Kind.SIZE: "{0}.size({1})", Kind.STRIDE: "{0}.stride({1})", Kind.DTYPE: "{0}.dtype", Kind.LENGTH: "len({0})",
    Kind.EQUALS: "{0}",
}


@dataclass(slots=True)
class _Function:
    """A function of the program with all events of its frame and of the frames that resume it."""

    place: Placed
    compiles: list[Compile] = field(default_factory=list)
    limits: list[LimitHit] = field(default_factory=list)
    skips: list[FrameSkipped] = field(default_factory=list)


def frame_histories(
    process: Process, number: int, compiles: Sequence[Compile], index: FindingIndex, start: float | None,
) -> list[FrameHistory]:
    """The compiled functions of a process."""
    values = _values(CompileHistory.of(process))
    functions = _functions(process, compiles, index)
    return [_history(process, number, function, values, index, start) for function in functions]


def _functions(process: Process, compiles: Sequence[Compile], index: FindingIndex) -> Iterable[_Function]:
    hits = list(process.of(LimitHit))
    skips = [skip for skip in process.of(FrameSkipped) if index.of_skip(skip)]
    places: dict[FrameKey, Placed] = {}
    for event in (*(compile_.place for compile_ in compiles), *hits, *skips):
        places.setdefault(frame_key(event), event)
    homes = _homes(places)
    functions: dict[FrameKey, _Function] = {}

    def function_of(event: Placed) -> _Function:
        home = homes[frame_key(event)]
        return functions.setdefault(home, _Function(place=places.get(home, event)))

    for compile_ in compiles:
        function_of(compile_.place).compiles.append(compile_)
    for hit in hits:
        function_of(hit).limits.append(hit)
    for skip in skips:
        function_of(skip).skips.append(skip)
    return functions.values()


def _homes(keys: Iterable[FrameKey]) -> dict[FrameKey, FrameKey]:
    """The function that each frame is part of.

    A resume frame is part of the last function of its name that begins above the line at which it resumes.
    """
    first_lines: dict[tuple[str, str], list[int]] = defaultdict(list)
    for path, function, line in keys:
        if resume_of(function) is None:
            first_lines[path, function].append(line or 0)
    homes: dict[FrameKey, FrameKey] = {}
    for key in keys:
        resume = resume_of(key[1])
        if resume is None:
            homes[key] = key
            continue
        name, line = resume
        above = max((first for first in first_lines[key[0], name] if first <= line), default=None)
        homes[key] = (key[0], name, above or None)
    return homes


def _history(
    process: Process, number: int, function: _Function, values: dict[Compile, dict[str, str]], index: FindingIndex,
    start: float | None,
) -> FrameHistory:
    shown = function.compiles
    if len(shown) > MAX_COMPILES:
        shown = shown[: MAX_COMPILES // 2] + shown[-MAX_COMPILES // 2:]
    return FrameHistory(
        name=index.function(function.place), location=_location(process, function.place), process=number,
        compiles=tuple(_compile_entry(compile_, values[compile_], start) for compile_ in shown),
        num_compiles=len(function.compiles), compile_seconds=compile_seconds(function.compiles),
        chain=_chain(function, index), is_at_limit=bool(function.limits), fingerprints=_fingerprints(function, index),
    )


def _fingerprints(function: _Function, index: FindingIndex) -> tuple[str, ...]:
    """The findings of a function, each once."""
    fingerprints = [index.of_limit(hit) for hit in function.limits]
    fingerprints += [index.of_compile(compile_) for compile_ in function.compiles]
    for compile_ in function.compiles:
        fingerprints += [index.of_break(event).fingerprint for event in compile_.breaks]
    fingerprints += [index.of_skip(skip) for skip in function.skips]
    return tuple(dict.fromkeys(filter(None, fingerprints)))


def _location(process: Process, event: Placed) -> Location:
    """Where the function is defined; torch's wrapper is shown as the module that is called through it."""
    if is_wrapped(event):
        return locate(process, event).location
    entry = StackEntry(path=event.path, line=event.line or 0, function=event.function)
    return Location(path=event.path, line=event.line, function=qualified_name(process, entry) or None)


# The compiles of a function


def _compile_entry(compile_: Compile, values: dict[str, str], start: float | None) -> CompileEntry:
    resume = resume_of(compile_.place.function)
    backward = [end.seconds for end in compile_.backward if end.seconds is not None]
    end = compile_.end
    return CompileEntry(
        compile_id=compile_.compile_id or "", time=0.0 if start is None else after(start, compile_.begin),
        step=compile_.step, seconds=compile_.seconds, backward_seconds=sum(backward) if backward else None,
        resumed_at=resume[1] if resume else None, failed=_failure(compile_),
        num_ops=end.num_graph_ops if end else None, num_guards=end.num_guards if end else None,
        guards_failed=tuple(map(_failed_guard, compile_.reasons[:MAX_GUARDS])),
        num_guards_failed=len(compile_.reasons) + compile_.num_omitted, values=_sizes_first(values),
    )


def _failure(compile_: Compile) -> str:
    """Why a compile made no code; empty if it did."""
    end = compile_.end
    if compile_.is_complete:
        return ""
    if end is None:
        return "its end was not recorded" if compile_.start else ""
    reason = one_line((end.fail_reason or "").split("\n", 1)[0], MAX_TEXT)
    return ": ".join(part for part in (end.fail_type, reason) if part) or "no code"


def _failed_guard(reason: str) -> str:
    return one_line(_STACK.split(reason, maxsplit=1)[0], MAX_TEXT)


def _values(history: CompileHistory) -> dict[Compile, dict[str, str]]:
    """The values that each compile is for: those guarded in the trace, then those named by the next failed guard."""
    values: dict[Compile, dict[str, str]] = {}
    for compile_ in history.compiles:
        own = values[compile_] = {
            _PART.sub(r".\1(\2)", readable(source)): value for source, value in compile_.values.items()
        }
        reason = parse_reason(compile_.reasons[0]) if compile_.reasons else None
        name = _guarded(reason) if reason else ""
        if reason is None or not name:
            continue
        entry = history.find(compile_.generation, reason.entry)
        if entry in values and entry is not compile_ and reason.old is not None:
            values[entry].setdefault(name, reason.old)
        if reason.new is not None:
            own.setdefault(name, reason.new)
    return values


def _guarded(reason: Reason) -> str:
    """The guarded value as the user writes it; empty if it says nothing about the compile."""
    form = _GUARDED.get(reason.kind)
    if form is None or (reason.kind is Kind.LENGTH and "!=" in reason.guard):
        return ""
    return form.format(reason.source, reason.dim)


def _sizes_first(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = sorted(values.items(), key=lambda pair: ".size(" not in pair[0])
    return tuple((source, one_line(value, MAX_TEXT)) for source, value in pairs[:MAX_VALUES])


# The chain of a function: its newest graph pieces with the breaks between them, in the order in which they run

Piece = tuple[Compile, str]         # with the note that distinguishes it from its neighbours


def _chain(function: _Function, index: FindingIndex) -> tuple[Link, ...]:
    """The links of a function; empty if nothing is known about its pieces."""
    newest = max((compile_.generation for compile_ in function.compiles), default=0)
    current = [compile_ for compile_ in function.compiles if compile_.generation == newest]
    first = _newest(compile_ for compile_ in current if resume_of(compile_.place.function) is None)
    pieces: Iterable[Piece] = _in_order(first, _resumes(current))
    if first and _runs_eager(first):
        pieces = [(first, "")]
    links = (link for compile_, note in pieces for link in _links(compile_, note, index))
    return tuple(islice(links, MAX_LINKS)) or tuple(_skip_link(skip, index) for skip in function.skips[:1])


def _newest(compiles: Iterable[Compile]) -> Compile | None:
    """The last compile that made code, else the last one."""
    newest = None
    for compile_ in compiles:
        if newest is None or compile_.is_complete or not newest.is_complete:
            newest = compile_
    return newest


def _runs_eager(compile_: Compile) -> bool:
    return compile_.end is not None and not compile_.is_complete


def _resumes(compiles: Iterable[Compile]) -> dict[Root, list[Compile]]:
    """The newest compile of each resume frame, by the line at which it resumes; each side of a branch has a frame."""
    frames: dict[tuple[Root, str], list[Compile]] = defaultdict(list)
    for compile_ in compiles:
        resume = resume_of(compile_.place.function)
        if resume:
            frames[(compile_.place.path, *resume), compile_.frame_number].append(compile_)
    resumes: dict[Root, list[Compile]] = defaultdict(list)
    for (root, _), of_frame in sorted(frames.items(), key=lambda item: item[0][0][2]):
        newest = _newest(of_frame)
        if newest is not None:
            resumes[root].append(newest)
    return resumes


def _in_order(first: Compile | None, resumes: dict[Root, list[Compile]]) -> Iterator[Piece]:
    """Each piece, then the pieces that resume after its breaks; pieces that no break leads to follow by line."""
    waiting: list[Piece] = [(first, "")] if first else []
    left = dict(resumes)
    while waiting or left:
        if not waiting:
            waiting = _branches(left.pop(next(iter(left))))
        compile_, note = waiting.pop()
        yield compile_, note
        exits = {root for event in compile_.breaks for root in roots(event, compile_.start)}
        for root in sorted(exits, key=lambda root: root[2], reverse=True):
            if root in left:
                waiting += _branches(left.pop(root))


def _branches(compiles: Sequence[Compile]) -> list[Piece]:
    """The last branch first: the list is used from its end."""
    pieces = []
    for number, compile_ in enumerate(compiles, start=1):
        pieces.append((compile_, f"branch {number} of {len(compiles)}" if len(compiles) > 1 else ""))
    return pieces[::-1]


def _links(compile_: Compile, note: str, index: FindingIndex) -> Iterator[Link]:
    """A piece and the break after it; only the break if there is no piece."""
    event, compile_id = compile_.place, compile_.compile_id or ""
    resume = resume_of(event.function)
    name = index.function(event)
    eager = ""
    if _runs_eager(compile_):
        eager = f"the rest of {name} {RUNS_EAGER}" if resume else f"{name} {RUNS_EAGER}"
    else:
        yield Link(
            is_break=False, label=f"resumed at line {resume[1]}" if resume else name, detail=note,
            compile_id=compile_id, location=Location(path=event.path, line=event.line, function=name),
            num_ops=compile_.end.num_graph_ops if compile_.end else None,
        )
    for broken in {break_key(broken): broken for broken in compile_.breaks}.values():
        entry = index.of_break(broken)
        yield Link(
            is_break=True, label=entry.label, detail=eager or broken.type, location=entry.location,
            compile_id=compile_id, fingerprint=entry.fingerprint,
        )
    if compile_.end is not None and eager and not compile_.breaks:
        label = f"{compile_.end.fail_type} while compiling" if compile_.end.fail_type else "no code was made"
        fingerprint = index.of_compile(compile_)
        yield Link(is_break=True, label=label, detail=eager, compile_id=compile_id, fingerprint=fingerprint)


def _skip_link(skip: FrameSkipped, index: FindingIndex) -> Link:
    """A frame that Dynamo never tried to compile."""
    name = index.name(skip)
    return Link(
        is_break=True, label="Dynamo skips the frame", detail=f"{name} {RUNS_EAGER}: {skip.reason}",
        location=Location(path=skip.path, line=skip.line, function=name), fingerprint=index.of_skip(skip),
    )
