"""The marks on a timeline: every compile, graph break, limit, skip and anomaly of a process that has a time."""

import re
from collections.abc import Iterable, Iterator

from torchtriage.diagnosis.attempts import Attempt, began
from torchtriage.diagnosis.break_eager import is_harmless
from torchtriage.diagnosis.marks import Marks
from torchtriage.findings.history import Moment, MomentKind
from torchtriage.recording.events import Anomaly, Event, FrameSkipped, GraphBreak, LimitHit
from torchtriage.recording.recording import Process

MAX_DETAIL = 160    # one line beside a mark; the frame's own list has more
_ENTRY = re.compile(r"\A(?:!?\d+(?:/\d+)*(?:_\d+)?|None):\s+")


def moments(process: Process, index: int, found: Iterable[Attempt], marks: Marks, start: float) -> Iterator[Moment]:
    """In no order. What has no time has no place on a timeline; the counts of the process still hold it."""
    for attempt in found:
        yield from _compiles(attempt, index, marks, start)
    for event in process.events:
        if event.time <= 0:
            continue
        if isinstance(event, GraphBreak):
            known = marks.of_break(event)
            yield _moment(MomentKind.BREAK, event, index, start, known.label, event.reason, known.fingerprint)
        elif isinstance(event, LimitHit):
            detail = first_guard(event.reasons)
            yield _moment(MomentKind.LIMIT, event, index, start, marks.name(event), detail, marks.of_limit(event))
        elif isinstance(event, Anomaly):
            label = f"{event.code} {event.subject}"
            yield _moment(MomentKind.ANOMALY, event, index, start, label, event.text, marks.of_anomaly(event))
        elif isinstance(event, FrameSkipped):
            fingerprint = marks.of_skip(event)
            if fingerprint or not is_harmless(event):   # a helper that Dynamo passes over costs nothing, and there are thousands
                yield _moment(MomentKind.SKIP, event, index, start, marks.name(event), event.reason, fingerprint)


def _compiles(attempt: Attempt, index: int, marks: Marks, start: float) -> Iterator[Moment]:
    """The compile itself and the compile of its backward, which torch puts off until the first backward pass."""
    kind = MomentKind.RECOMPILE if attempt.recompile else MomentKind.COMPILE
    begin = attempt.begin
    name, fingerprint, compile_id = marks.name(attempt.place), marks.of_attempt(attempt), attempt.compile_id or ""
    if begin > 0:
        yield Moment(
            kind=kind, time=after(start, begin), process=index, seconds=attempt.seconds, step=attempt.step, label=name,
            detail=first_guard(attempt.recompile.reasons) if attempt.recompile else "", compile_id=compile_id, fingerprint=fingerprint,
        )
    for end in attempt.backward:
        if end.time > 0:
            yield Moment(
                kind=kind, time=after(start, began(end)), process=index, seconds=end.seconds, step=end.step,
                label=f"{name}, backward", compile_id=compile_id, fingerprint=fingerprint, is_backward=True,
            )


def _moment(kind: MomentKind, event: Event, index: int, start: float, label: str, detail: str, fingerprint: str) -> Moment:
    return Moment(
        kind=kind, time=after(start, event.time), process=index, step=event.step, label=label, detail=one_line(detail, MAX_DETAIL),
        compile_id=event.compile_id or "", fingerprint=fingerprint,
    )


def after(start: float, time: float) -> float:
    """Seconds after the run began, to the microsecond."""
    return max(0.0, round(time - start, 6))


def first_guard(reasons: tuple[str, ...]) -> str:
    """The guard of the newest cache entry that failed, without the entry's id and the source line behind it."""
    if not reasons:
        return ""
    guard = _ENTRY.sub("", reasons[0].strip()).split("\n", 1)[0]
    return one_line(guard.split("  # ", 1)[0], MAX_DETAIL)


def one_line(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
