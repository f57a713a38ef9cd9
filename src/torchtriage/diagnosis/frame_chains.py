"""A function as torch.compile cut it: its newest graph pieces and the breaks between them, in the order they run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from torchtriage.diagnosis.attempts import Attempt
from torchtriage.diagnosis.frames import break_key, roots
from torchtriage.diagnosis.marks import Marks
from torchtriage.diagnosis.places import resume_of
from torchtriage.findings.history import Link
from torchtriage.findings.model import Location
from torchtriage.recording.events import FrameSkipped

MAX_LINKS = 200
RUNS_EAGER = "runs eager"

Resumed = tuple[str, str, int]      # path, function, line
Piece = tuple[Attempt, str]         # and what sets it apart from its neighbours


def chain(found: Sequence[Attempt], skips: Sequence[FrameSkipped], marks: Marks) -> tuple[Link, ...]:
    """The links of one function, whose frames and resume frames these are; empty if nothing is known of its pieces."""
    newest = max((a.generation for a in found), default=0)
    current = [a for a in found if a.generation == newest]
    first = _newest(a for a in current if resume_of(a.place.function) is None)
    pieces = [(first, "")] if first and _runs_eager(first) else _in_order(first, _resumes(current))
    links = (link for attempt, note in pieces for link in _links(attempt, note, marks))
    return tuple(islice(links, MAX_LINKS)) or tuple(_skipped(skip, marks) for skip in skips[:1])


def _newest(found: Iterable[Attempt]) -> Attempt | None:
    """The last one that made code, else the last one."""
    last = list(found)
    return next((a for a in reversed(last) if a.is_complete), last[-1] if last else None)


def _runs_eager(attempt: Attempt) -> bool:
    return attempt.end is not None and not attempt.is_complete


def _resumes(found: Iterable[Attempt]) -> dict[Resumed, list[Attempt]]:
    """The newest compile of each resume frame, by the line it resumes at; a branch on data has two frames at one line."""
    frames: dict[tuple[Resumed, str], list[Attempt]] = defaultdict(list)
    for attempt in found:
        resume = resume_of(attempt.place.function)
        if resume:
            frames[(attempt.place.path, *resume), attempt.frame_number].append(attempt)
    resumes: dict[Resumed, list[Attempt]] = defaultdict(list)
    for (at, _), compiles in sorted(frames.items(), key=lambda item: item[0][0][2]):
        newest = _newest(compiles)
        if newest is not None:
            resumes[at].append(newest)
    return resumes


def _in_order(first: Attempt | None, resumes: dict[Resumed, list[Attempt]]) -> Iterator[Piece]:
    """Each piece, then what resumes after its breaks; a piece that no break leads to follows in the order of lines."""
    waiting: list[Piece] = [(first, "")] if first else []
    left = dict(resumes)
    while waiting or left:
        if not waiting:
            waiting = _branches(left.pop(next(iter(left))))
        attempt, note = waiting.pop()
        yield attempt, note
        after = sorted({at for event in attempt.breaks for at in roots(event, attempt.start)}, key=lambda at: at[2])
        for at in reversed([at for at in after if at in left]):
            waiting += _branches(left.pop(at))


def _branches(found: Sequence[Attempt]) -> list[Piece]:
    """The last comes first: the list is used from its end."""
    notes = [f"branch {number} of {len(found)}" if len(found) > 1 else "" for number in range(1, len(found) + 1)]
    return list(zip(reversed(found), reversed(notes), strict=True))


def _links(attempt: Attempt, note: str, marks: Marks) -> Iterator[Link]:
    """A piece and the break after it; only the break if there is no piece."""
    event, compile_id = attempt.place, attempt.compile_id or ""
    resume = resume_of(event.function)
    name = marks.function(event)
    if not _runs_eager(attempt):
        yield Link(
            is_break=False, label=f"resumed at line {resume[1]}" if resume else name, detail=note, compile_id=compile_id,
            location=Location(path=event.path, line=event.line, function=name),
            num_ops=attempt.end.num_graph_ops if attempt.end else None,
        )
    detail = f"{'the rest of ' if resume else ''}{name} {RUNS_EAGER}" if _runs_eager(attempt) else ""
    for broken in {break_key(b): b for b in attempt.breaks}.values():
        known = marks.of_break(broken)
        yield Link(
            is_break=True, label=known.label, detail=detail or broken.type, location=known.location, compile_id=compile_id,
            fingerprint=known.fingerprint,
        )
    if attempt.end is not None and detail and not attempt.breaks:
        label = f"{attempt.end.fail_type} while compiling" if attempt.end.fail_type else "no code was made"
        yield Link(is_break=True, label=label, detail=detail, compile_id=compile_id, fingerprint=marks.of_attempt(attempt))


def _skipped(skip: FrameSkipped, marks: Marks) -> Link:
    """A frame that Dynamo never tried."""
    return Link(
        is_break=True, label="Dynamo skips the frame", detail=f"{marks.name(skip)} {RUNS_EAGER}: {skip.reason}",
        location=Location(path=skip.path, line=skip.line, function=marks.name(skip)), fingerprint=marks.of_skip(skip),
    )
