"""The moments of a timeline: every compile, graph break, limit, skip or anomaly of a process that has a time."""

import re
from collections.abc import Iterable, Iterator

from torchtriage.diagnosis.compiles.eager import is_harmless
from torchtriage.diagnosis.compiles.frames import Compile, begin_of
from torchtriage.diagnosis.history.finding_index import FindingIndex
from torchtriage.findings.history import Moment, MomentKind
from torchtriage.recording.events import Anomaly, Event, FrameSkipped, GraphBreak, LimitHit
from torchtriage.recording.recording import Process
from torchtriage.text import shortened

MAX_DETAIL = 160    # characters beside a mark; the list of the frame has more
_ENTRY = re.compile(r"\A(?:!?\d+(?:/\d+)*(?:_\d+)?|None):\s+")


def moments(
    process: Process, number: int, compiles: Iterable[Compile], index: FindingIndex, start: float,
) -> Iterator[Moment]:
    """Unsorted. An event without a time is left out; the counts of the process still include it."""
    for compile_ in compiles:
        yield from _compile_moments(compile_, number, index, start)
    for event in process.events:
        if event.time <= 0:
            continue
        if isinstance(event, GraphBreak):
            entry = index.of_break(event)
            yield _moment(MomentKind.BREAK, event, number, start, entry.label, event.reason, entry.fingerprint)
        elif isinstance(event, LimitHit):
            detail = first_guard(event.reasons)
            yield _moment(MomentKind.LIMIT, event, number, start, index.name(event), detail, index.of_limit(event))
        elif isinstance(event, Anomaly):
            label = f"{event.code} {event.subject}"
            yield _moment(MomentKind.ANOMALY, event, number, start, label, event.text, index.of_anomaly(event))
        elif isinstance(event, FrameSkipped):
            fingerprint = index.of_skip(event)
            # A helper function that Dynamo skips costs nothing, and there are thousands of them.
            if fingerprint or not is_harmless(event):
                yield _moment(MomentKind.SKIP, event, number, start, index.name(event), event.reason, fingerprint)


def _compile_moments(compile_: Compile, number: int, index: FindingIndex, start: float) -> Iterator[Moment]:
    """The compile and the compile of its backward, which torch delays until the first backward pass."""
    kind = MomentKind.RECOMPILE if compile_.recompile else MomentKind.COMPILE
    name = index.name(compile_.place)
    fingerprint = index.of_compile(compile_)
    compile_id = compile_.compile_id or ""
    if compile_.begin > 0:
        yield Moment(
            kind=kind, time=after(start, compile_.begin), process=number, seconds=compile_.seconds, step=compile_.step,
            label=name, detail=first_guard(compile_.reasons), compile_id=compile_id, fingerprint=fingerprint,
        )
    for end in compile_.backward:
        if end.time > 0:
            yield Moment(
                kind=kind, time=after(start, begin_of(end)), process=number, seconds=end.seconds, step=end.step,
                label=f"{name}, backward", compile_id=compile_id, fingerprint=fingerprint, is_backward=True,
            )


def _moment(
    kind: MomentKind, event: Event, number: int, start: float, label: str, detail: str, fingerprint: str,
) -> Moment:
    return Moment(
        kind=kind, time=after(start, event.time), process=number, step=event.step, label=label,
        detail=one_line(detail, MAX_DETAIL), compile_id=event.compile_id or "", fingerprint=fingerprint,
    )


def after(start: float, time: float) -> float:
    """Seconds after the run began, to the microsecond."""
    return max(0.0, round(time - start, 6))


def first_guard(reasons: tuple[str, ...]) -> str:
    """The failed guard of the newest cache entry, without the id of the entry and the source line."""
    if not reasons:
        return ""
    guard = _ENTRY.sub("", reasons[0].strip()).split("\n", 1)[0]
    return one_line(guard.split("  # ", 1)[0], MAX_DETAIL)


def one_line(text: str, most: int) -> str:
    """The text on one line, of at most this many characters."""
    return shortened(" ".join(text.split()), most)
