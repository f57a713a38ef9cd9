"""The machine-written section of a ticket: the last run that showed the finding or its absence, with proofs."""

import datetime
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.frames import CompileHistory
from torchtriage.diagnosis.places import qualified_name
from torchtriage.findings.model import Finding
from torchtriage.findings.proof.remedy import proof_sentence
from torchtriage.recording.events import Placed, StackEntry
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import ranges
from torchtriage.tickets.files.edit import seen_lines, set_seen
from torchtriage.tickets.files.read import TicketFile, entries
from torchtriage.tickets.files.render import TABLE_HEADER, table_row
from torchtriage.tickets.markdown.lines import scan
from torchtriage.tickets.markdown.lists import items
from torchtriage.tickets.markdown.sections import TicketSection
from torchtriage.tickets.markdown.tables import code_cell, plain_value, plain_values, text_cell
from torchtriage.tickets.runs.from_finding import MAX_LISTED, cost_text, ticket_path

_NOTE = "Written by `torchtriage ticket new` and rewritten after each run; edits to this section are lost."
_CONFIRMED = re.compile(r"confirmed by .* \(fingerprint=(\w+)\)$")
_NUM_STEPS = re.compile(r"(\d{1,18}) steps$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, as tickets name it; `start` is empty and `num_steps` None if the source does not contain them."""

    name: str
    start: str = ""
    num_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A finding in a run, as the ticket keeps it.

    `frames` are the compiled functions that contain the finding, each as `path::name`. `gone` is the newest run that
    showed its absence. Each of `proofs` names a ticked box, the run that ticked it, and the reason; or a finding that
    confirms the ticket; or an edit that was verified to cure the finding.
    """

    run: Run | None = None
    gone: Run | None = None
    place: str = ""
    num_events: int = 0
    cost: str = ""
    steps: str = ""
    frames: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()

    @property
    def confirmed(self) -> list[str]:
        """The fingerprints of the findings that confirm the ticket."""
        return [match[1] for proof in self.proofs if (match := _CONFIRMED.match(proof))]


def confirmation(finding: Finding, source: str, roots: Sequence[str]) -> str:
    """The line of a ticket about a finding that confirms it; `source` is the name of a run, or of lint."""
    place = finding.location
    title = " ".join(finding.title.split())
    return (
        f"confirmed by {source}: {finding.code} at {ticket_path(place.path, roots)}:{place.line}, {title} "
        f"(fingerprint={finding.fingerprint})"
    )


def run_of(recording: Recording, name: str) -> Run:
    starts = [recording.launcher.start, *(process.program.start for process in recording.processes)]
    times = [float(start) for start in starts if isinstance(start, (int, float))]
    if not times:       # a trace has only events
        times = [event.time for process in recording.processes for event in process.events if event.time]
    steps = [process.num_steps for process in recording.processes if process.num_steps is not None]
    return Run(name=name, start=_moment(min(times, default=None)), num_steps=max(steps) if steps else None)


def _moment(seconds: float | None) -> str:
    if not seconds:
        return ""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):    # a damaged recording may contain any time
        return ""


def sighting_of(finding: Finding, recording: Recording, run: Run, roots: Sequence[str]) -> Sighting:
    place = finding.location
    return Sighting(
        run=run, place=f"{ticket_path(place.path, roots)}:{place.line}" if place.line else "",
        num_events=finding.evidence.num_events, cost=cost_text(finding.cost), steps=ranges(finding.steps, MAX_LISTED),
        frames=tuple(sorted(_frames_of(finding, recording, roots))),
        proofs=() if finding.proof is None else (f"verified edit: {proof_sentence(finding.proof)}",),
    )


def _frames_of(finding: Finding, recording: Recording, roots: Sequence[str]) -> set[str]:
    """The compiled functions in which the finding's events occurred."""
    places = {(place.path, place.line) for place in (finding.location, finding.raised_at) if place is not None}
    compile_ids = set(finding.evidence.compile_ids)
    frames = set()
    for process in recording.processes:
        history = CompileHistory.of(process)
        for event in process.of(Placed):
            compile_ = history.compile_of(event)
            if compile_ is None or compile_.start is None or event.compile_id not in compile_ids:
                continue
            event_places = {(event.path, event.line), *((entry.path, entry.line) for entry in event.stack)}
            if places & event_places:
                frames.add(_frame_name(process, compile_.start, roots))
    return frames


def _frame_name(process: Process, start: Placed, roots: Sequence[str]) -> str:
    entry = StackEntry(path=start.path, line=start.line or 0, function=start.function)
    return f"{ticket_path(start.path, roots)}::{qualified_name(process, entry)}"


def read_sighting(file: TicketFile) -> Sighting:
    """The sighting that an earlier run wrote into the file; empty if none did."""
    lines = scan("\n".join(seen_lines(file)))[0]
    by_key = {entry.key: entry for entry in entries(TicketSection(name="seen"), lines)}
    values = defaultdict(str, {key: plain_value(entry.raw) for key, entry in by_key.items()})
    steps, events = _NUM_STEPS.search(values["run length"]), values["events"]
    run = Run(name=values["last seen in"], start=values["run began"], num_steps=int(steps[1]) if steps else None)
    gone = Run(name=values["gone in"], start=values["that run began"])
    return Sighting(
        run=run if run.name else None, gone=gone if gone.name else None, place=values["place"], cost=values["cost"],
        steps=values["steps"], num_events=int(events) if events.isdecimal() else 0,
        proofs=tuple(text for _, text in items(lines)),
        frames=plain_values(by_key["compiled in"].raw) if "compiled in" in by_key else (),
    )


def with_sighting(file: TicketFile, sighting: Sighting) -> TicketFile:
    """The file with its machine-written section rewritten."""
    rows = []
    if sighting.run:
        num_steps = sighting.run.num_steps
        rows = [
            ("Last seen in", code_cell(sighting.run.name)), ("Run began", text_cell(sighting.run.start)),
            ("Run length", "" if num_steps is None else f"{num_steps} steps"), ("Place", code_cell(sighting.place)),
            ("Compiled in", ", ".join(code_cell(frame) for frame in sighting.frames)),
            ("Events", str(sighting.num_events)), ("Steps", text_cell(sighting.steps)),
            ("Cost", text_cell(sighting.cost)),
        ]
    if sighting.gone:
        rows += [("Gone in", code_cell(sighting.gone.name)), ("That run began", text_cell(sighting.gone.start))]
    table = ["", *TABLE_HEADER, *(table_row(key, cell) for key, cell in rows if cell)] if rows else []
    proofs = ["", *(f"- {proof}" for proof in sighting.proofs)] if sighting.proofs else []
    return set_seen(file, ["", _NOTE, *table, *proofs, ""])
