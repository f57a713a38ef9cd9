"""The compiled functions of a process: each with its compiles, what they were made for, and its newest pieces as a chain."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchtriage.diagnosis.attempts import Attempt
from torchtriage.diagnosis.frame_chains import chain
from torchtriage.diagnosis.frames import FrameKey, frame_key
from torchtriage.diagnosis.marks import Marks
from torchtriage.diagnosis.places import is_wrapped, locate, qualified_name, resume_of
from torchtriage.diagnosis.reasons import Kind, Reason, parse_reason
from torchtriage.diagnosis.source_names import readable
from torchtriage.diagnosis.timeline import after, one_line
from torchtriage.findings.history import Compile, FrameHistory
from torchtriage.findings.model import Location
from torchtriage.recording.events import FrameSkipped, LimitHit, Placed, StackEntry
from torchtriage.recording.recording import Process

MAX_COMPILES = 200      # of a frame: as many from the beginning as from the end
MAX_VALUES = 32         # of a compile
MAX_GUARDS = 8          # of a compile, newest cache entry first: as many as the default recompile limit allows
MAX_TEXT = 300

_PART = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_STACK = re.compile(r"\n[\s-]*user stack", re.IGNORECASE)
_GUARDED = {
    Kind.SIZE: "{0}.size({1})", Kind.STRIDE: "{0}.stride({1})", Kind.DTYPE: "{0}.dtype", Kind.LENGTH: "len({0})", Kind.EQUALS: "{0}",
}


@dataclass(slots=True)
class _Function:
    """A function of the program and all that happened to its frame and to the frames that resume it."""

    place: Placed
    attempts: list[Attempt] = field(default_factory=list)
    limits: list[LimitHit] = field(default_factory=list)
    skips: list[FrameSkipped] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        timed = [e.seconds for a in self.attempts for e in (a.end, *a.backward) if e is not None and e.seconds is not None]
        return sum(timed) if timed else None


def frame_histories(process: Process, index: int, found: Sequence[Attempt], marks: Marks, start: float | None) -> list[FrameHistory]:
    """The compiled functions of a process."""
    values = _values(found)
    return [_history(process, index, function, values, marks, start) for function in _functions(process, found, marks)]


def _functions(process: Process, found: Iterable[Attempt], marks: Marks) -> Iterable[_Function]:
    hits = list(process.of(LimitHit))
    skips = [skip for skip in process.of(FrameSkipped) if marks.of_skip(skip)]
    places: dict[FrameKey, Placed] = {}
    for event in (*(a.place for a in found), *hits, *skips):
        places.setdefault(frame_key(event), event)
    homes = _homes(places)
    functions: dict[FrameKey, _Function] = {}

    def function_of(event: Placed) -> _Function:
        home = homes[frame_key(event)]
        return functions.setdefault(home, _Function(place=places.get(home, event)))

    for attempt in found:
        function_of(attempt.place).attempts.append(attempt)
    for hit in hits:
        function_of(hit).limits.append(hit)
    for skip in skips:
        function_of(skip).skips.append(skip)
    return functions.values()


def _homes(keys: Iterable[FrameKey]) -> dict[FrameKey, FrameKey]:
    """For each frame the function that it is part of: of those with its name, the last that begins above the line it resumes at."""
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
    process: Process, index: int, function: _Function, values: dict[int, dict[str, str]], marks: Marks, start: float | None,
) -> FrameHistory:
    kept = function.attempts
    if len(kept) > MAX_COMPILES:
        kept = kept[: MAX_COMPILES // 2] + kept[-MAX_COMPILES // 2:]
    fingerprints = (
        *(marks.of_limit(hit) for hit in function.limits), *(marks.of_attempt(a) for a in function.attempts),
        *(marks.of_break(e).fingerprint for a in function.attempts for e in a.breaks), *(marks.of_skip(skip) for skip in function.skips),
    )
    return FrameHistory(
        name=marks.function(function.place), location=_location(process, function.place), process=index,
        compiles=tuple(_compile(attempt, values[id(attempt)], start) for attempt in kept),
        num_compiles=len(function.attempts), compile_seconds=function.seconds,
        chain=chain(function.attempts, function.skips, marks), is_at_limit=bool(function.limits),
        fingerprints=tuple(dict.fromkeys(mark for mark in fingerprints if mark)),
    )


def _location(process: Process, event: Placed) -> Location:
    """Where the function is defined; a wrapper of torch's stands for the module that is called through it."""
    if is_wrapped(event):
        return locate(process, event).location
    entry = StackEntry(path=event.path, line=event.line or 0, function=event.function)
    return Location(path=event.path, line=event.line, function=qualified_name(process, entry) or None)


def _compile(attempt: Attempt, values: dict[str, str], start: float | None) -> Compile:
    resume = resume_of(attempt.place.function)
    backward = [end.seconds for end in attempt.backward if end.seconds is not None]
    end = attempt.end
    return Compile(
        compile_id=attempt.compile_id or "", time=0.0 if start is None else after(start, attempt.begin), step=attempt.step,
        seconds=attempt.seconds, backward_seconds=sum(backward) if backward else None, resumed_at=resume[1] if resume else None,
        failed=_failed(attempt), num_ops=end.num_graph_ops if end else None, num_guards=end.num_guards if end else None,
        guards_failed=tuple(_guards(attempt.recompile.reasons)) if attempt.recompile else (), values=_sizes_first(values),
    )


def _failed(attempt: Attempt) -> str:
    end = attempt.end
    if attempt.is_complete:
        return ""
    if end is None:
        return "its end was not recorded" if attempt.start else ""
    reason = one_line((end.fail_reason or "").split("\n", 1)[0], MAX_TEXT)
    return ": ".join(part for part in (end.fail_type, reason) if part) or "no code"


def _guards(reasons: tuple[str, ...]) -> Iterator[str]:
    for reason in reasons[:MAX_GUARDS]:
        yield one_line(_STACK.split(reason, maxsplit=1)[0], MAX_TEXT)
    if len(reasons) > MAX_GUARDS:
        yield f"and {len(reasons) - MAX_GUARDS} older cache entries"


def _values(found: Iterable[Attempt]) -> dict[int, dict[str, str]]:
    """What each compile was made for: the guarded values that torch wrote down, and what the next failed guard tells of it."""
    values: dict[int, dict[str, str]] = {}
    by_id: dict[tuple[int, str | None], Attempt] = {}
    for attempt in found:
        own = values[id(attempt)] = {_PART.sub(r".\1(\2)", readable(source)): value for source, value in attempt.values.items()}
        by_id[attempt.generation, attempt.compile_id] = attempt
        reason = parse_reason(attempt.recompile.reasons[0]) if attempt.recompile and attempt.recompile.reasons else None
        name = _guarded(reason) if reason else ""
        if reason is None or not name:
            continue
        entry = by_id.get((attempt.generation, reason.entry))
        if entry is not None and entry is not attempt and reason.old is not None:
            values[id(entry)].setdefault(name, reason.old)
        if reason.new is not None:
            own.setdefault(name, reason.new)
    return values


def _guarded(reason: Reason) -> str:
    """What a guard looked at, as the user writes it; empty if its value says nothing about the compile."""
    form = _GUARDED.get(reason.kind)
    if form is None or (reason.kind is Kind.LENGTH and "!=" in reason.guard):
        return ""
    return form.format(reason.source, reason.dim)


def _sizes_first(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = sorted(values.items(), key=lambda pair: ".size(" not in pair[0])
    return tuple((source, one_line(value, MAX_TEXT)) for source, value in pairs[:MAX_VALUES])
