"""The part of a ticket that torchtriage writes: where and when a run last showed the finding, and what it proved."""

import datetime
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.frames import CompileHistory
from torchtriage.diagnosis.places import qualified_name
from torchtriage.findings.model import Finding
from torchtriage.recording.events import Placed, StackEntry
from torchtriage.recording.recording import Recording
from torchtriage.tickets.files.edit import seen_lines, set_seen
from torchtriage.tickets.files.reading import entries, items
from torchtriage.tickets.files.render import HEAD, row
from torchtriage.tickets.markdown.lines import Section, scan
from torchtriage.tickets.markdown.tables import dressed_as_code, dressed_plain, listed, undressed
from torchtriage.tickets.model import TicketFile
from torchtriage.tickets.runs.from_finding import cost_sentence, relative, some

_NOTE = "Written by `torchtriage ticket new`, and again after each run; what you write here is lost."
_STEPS_OF = re.compile(r"(\d{1,18}) steps$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, as tickets name it; `start` is empty and `num_steps` None where the source does not tell."""

    name: str
    start: str = ""
    num_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`frames` are the compiled functions that the finding lies in, each as `path::name`; `gone` is the newest run that showed its absence;
    `proofs` say which run ticked a box and why."""

    run: Run | None = None
    gone: Run | None = None
    place: str = ""
    num_events: int = 0
    cost: str = ""
    steps: str = ""
    frames: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()


def run_of(recording: Recording, name: str) -> Run:
    known = [recording.launcher.start, *(p.program.start for p in recording.processes)]
    times = [float(each) for each in known if isinstance(each, (int, float))]
    start = min(times or [e.time for p in recording.processes for e in p.events if e.time], default=None)      # a trace has only events
    steps = [p.num_steps for p in recording.processes if p.num_steps is not None]
    return Run(name=name, start=_moment(start), num_steps=max(steps) if steps else None)


def _moment(start: float | None) -> str:
    try:
        return datetime.datetime.fromtimestamp(start, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if start else ""
    except (OverflowError, ValueError, OSError):    # a damaged recording may claim any time
        return ""


def seen_in(finding: Finding, recording: Recording, run: Run, roots: Sequence[str]) -> Seen:
    return Seen(
        run=run, place=f"{relative(finding.location.path, roots)}:{finding.location.line}" if finding.location.line else "",
        num_events=finding.evidence.num_events, cost=cost_sentence(finding.cost), steps=some(finding.steps),
        frames=tuple(sorted(_frames_of(finding, recording, roots))),
    )


def _frames_of(finding: Finding, recording: Recording, roots: Sequence[str]) -> set[str]:
    """The compiled functions in which the finding's events came up."""
    places = {(place.path, place.line) for place in (finding.location, finding.raised_at) if place is not None}
    wanted = set(finding.evidence.compile_ids)
    found = set()
    for process in recording.processes:
        history = CompileHistory.of(process)
        for event in process.of(Placed):
            compile_ = history.compile_of(event)
            if compile_ is None or compile_.start is None or event.compile_id not in wanted:
                continue
            if places & {(event.path, event.line), *((entry.path, entry.line) for entry in event.stack)}:
                start = compile_.start
                entry = StackEntry(path=start.path, line=start.line or 0, function=start.function)
                found.add(f"{relative(start.path, roots)}::{qualified_name(process, entry)}")
    return found


def read_seen(file: TicketFile) -> Seen:
    """What an earlier run left in the file; nothing if none did."""
    lines = scan("\n".join(seen_lines(file)))[0]
    found = {entry.key: entry for entry in entries(Section(name="seen"), lines)}
    values = defaultdict(str, {key: undressed(entry.raw) for key, entry in found.items()})
    steps, events = _STEPS_OF.search(values["run length"]), values["events"]
    run = Run(name=values["last seen in"], start=values["run began"], num_steps=int(steps[1]) if steps else None)
    gone = Run(name=values["gone in"], start=values["that run began"])
    return Seen(
        run=run if run.name else None, gone=gone if gone.name else None, place=values["place"], cost=values["cost"], steps=values["steps"],
        num_events=int(events) if events.isdecimal() else 0, proofs=tuple(text for _, text in items(lines)),
        frames=listed(found["compiled in"].raw) if "compiled in" in found else (),
    )


def with_seen(file: TicketFile, seen: Seen) -> TicketFile:
    """The file with its machine-written part made anew."""
    rows = []
    if seen.run:
        length = "" if seen.run.num_steps is None else f"{seen.run.num_steps} steps"
        rows = [
            ("Last seen in", dressed_as_code(seen.run.name)), ("Run began", dressed_plain(seen.run.start)), ("Run length", length),
            ("Place", dressed_as_code(seen.place)), ("Compiled in", ", ".join(dressed_as_code(frame) for frame in seen.frames)),
            ("Events", str(seen.num_events)), ("Steps", dressed_plain(seen.steps)), ("Cost", dressed_plain(seen.cost)),
        ]
    if seen.gone:
        rows += [("Gone in", dressed_as_code(seen.gone.name)), ("That run began", dressed_plain(seen.gone.start))]
    table = ["", *HEAD, *(row(key, value) for key, value in rows if value)] if rows else []
    proofs = ["", *(f"- {proof}" for proof in seen.proofs)] if seen.proofs else []
    return set_seen(file, ["", _NOTE, *table, *proofs, ""])

