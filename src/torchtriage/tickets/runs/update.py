"""Apply a run to the tickets.

A finding without a ticket gets one. An existing ticket gets its boxes ticked, or a proposal to close or reopen it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchtriage.diagnosis.remedy_proofs import stored_proofs, with_proofs
from torchtriage.diagnosis.suppress import comments_in
from torchtriage.findings.checks import check_in
from torchtriage.findings.model import Finding
from torchtriage.findings.selection import suppressed
from torchtriage.recording.recording import Recording
from torchtriage.tickets.files.edit import set_box, set_field
from torchtriage.tickets.files.read import TicketFile, parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import ENDED, Status, Ticket
from torchtriage.tickets.naming import RECORDING_AGENT, next_id
from torchtriage.tickets.runs.call_graph import Project
from torchtriage.tickets.runs.from_finding import ticket_from
from torchtriage.tickets.runs.observations import Observations
from torchtriage.tickets.runs.seen_section import (
    Run,
    Sighting,
    confirmation,
    read_sighting,
    run_of,
    sighting_of,
    with_sighting,
)
from torchtriage.tickets.runs.verify import Case, State, judge, possible_successor, too_short

# A ticket with one of these is proposed for reopening if the finding occurs again. The other ended statuses are a
# person's decision, which holds even though the finding occurs.
FIXED = frozenset({Status.CLOSED, Status.FIXED, Status.ALREADY_FIXED})

BoxReasons = tuple[tuple[str, str], ...]    # (text of a verification box, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketUpdate:
    """A ticket after a run: its new file, the boxes that were ticked or left open, and the proposed status, if any."""

    file: TicketFile
    ticked: BoxReasons = ()
    left: BoxReasons = ()
    proposed: Status | None = None
    reason: str = ""


def tickets_by_fingerprint(files: Iterable[TicketFile]) -> dict[str, str]:
    """The ID of the ticket of each fingerprint: that of the ticket itself, and those of findings that confirmed it."""
    ids = {}
    for file in files:
        for fingerprint in (file.ticket.fingerprint, *read_sighting(file).confirmed):
            if fingerprint:
                ids[fingerprint] = file.ticket.id
    return ids


def confirmed_by(file: TicketFile, finding: Finding, source: str, roots: Sequence[str]) -> TicketFile:
    """The ticket with a finding as evidence in its machine-written section."""
    sighting = read_sighting(file)
    return with_sighting(file, replace(sighting, proofs=(*sighting.proofs, confirmation(finding, source, roots))))


class NewRun:
    """A run to apply to tickets.

    `findings` are those that no comment in the source accepts; `root` is the folder of the project.
    """

    def __init__(self, recording: Recording, *, name: str, root: Path, today: str) -> None:
        self.observations = Observations(recording)
        findings = with_proofs(self.observations.findings, stored_proofs(recording)[0])
        self.findings: Sequence[Finding] = suppressed(findings, comments_in(recording))[0]
        self.run = run_of(recording, name)
        self._today = today
        self._project = Project(root)
        self.roots = (str(root), str(recording.launcher.cwd or ""))
        self._sightings = {
            finding.fingerprint: sighting_of(finding, recording, self.run, self.roots) for finding in self.findings
        }

    def update(self, file: TicketFile, ticketed: frozenset[str]) -> tuple[Case, TicketUpdate]:
        """The effect of the run on a ticket; `ticketed` are the fingerprints that have a ticket."""
        case = Case(
            ticket=file.ticket, observations=self.observations, sighting=read_sighting(file), project=self._project,
            ticketed=ticketed,
        )
        marks = (mark for mark in case.fingerprints if mark in self._sightings)
        sighting = self._sightings.get(next(marks, ""))
        return case, _update(file, case, self.run, sighting, self._today)

    def tickets(
        self, findings: Sequence[Finding], batch: int, ids_in_use: Sequence[str], ticket_ids: Mapping[str, str],
    ) -> list[TicketFile]:
        """A ticket per finding, with the text of its file; `ticket_ids` are the tickets of other fingerprints."""
        new_ids: dict[str, str] = {}
        for finding in findings:
            new_ids[finding.fingerprint] = next_id(batch, RECORDING_AGENT, [*ids_in_use, *new_ids.values()])
        files = []
        for finding in findings:
            ticket = ticket_from(
                finding, ticket_id=new_ids[finding.fingerprint], batch=str(batch), today=self._today,
                source=self.run.name, roots=self.roots, ticket_ids={**ticket_ids, **new_ids},
            )
            files.append(self._file(ticket))
        return files

    def _file(self, ticket: Ticket) -> TicketFile:
        return with_sighting(parse(render(ticket), Path(ticket.id)), self._sightings[ticket.fingerprint])


def _update(file: TicketFile, case: Case, run: Run, sighting: Sighting | None, today: str) -> TicketUpdate:
    """`sighting` is None if the run does not show the ticket's finding."""
    for newer in (case.sighting.run, case.sighting.gone):
        if newer and run.start and newer.start > run.start:
            reason = f"{run.name} is older than {newer.name}, which was already applied to this ticket"
            return TicketUpdate(file=file, reason=reason)
    note = case.sighting
    if sighting is not None:
        note = replace(sighting, proofs=tuple(dict.fromkeys((*case.sighting.proofs, *sighting.proofs))))
    if file.ticket.status.lower() in ENDED:
        return _update_ended(file, run, note if sighting else None)
    new = file
    ticked: BoxReasons = ()
    left: BoxReasons = ()
    if case.sighting.run != run:    # a box asks for the next run, not for the one that created the ticket
        new, ticked, left = _with_ticks(file, case)
    proposed, reason = (None, "") if sighting else _closing(case, run)
    if proposed:
        note = replace(note, gone=run)
    if sighting or ticked or proposed:
        proofs = [*note.proofs, *(f'{run.name} ticked "{text}": {why}' for text, why in ticked)]
        new = with_sighting(new, replace(note, proofs=tuple(dict.fromkeys(proofs))))
    if ticked:
        new = set_field(new, "updated", today)
    return TicketUpdate(file=new, ticked=ticked, left=left, proposed=proposed, reason=reason)


def _update_ended(file: TicketFile, run: Run, sighting: Sighting | None) -> TicketUpdate:
    """A ticket that has ended; it is proposed for reopening if its finding was fixed and occurs again."""
    if sighting is None:
        return TicketUpdate(file=file)
    new = with_sighting(file, sighting)
    if file.ticket.status.lower() not in FIXED:
        return TicketUpdate(file=new)
    return TicketUpdate(file=new, proposed=Status.OPEN, reason=f"it came back in {run.name}")


def apply_proposal(update: TicketUpdate, case: Case, today: str) -> TicketFile:
    """The ticket with the proposed status; reopening also clears the ticked boxes that the run refutes."""
    if update.proposed is None:
        return update.file
    file = set_field(set_field(update.file, "status", update.proposed), "updated", today)
    if update.proposed is Status.OPEN:
        sighting = read_sighting(file)
        for number, box in enumerate(file.ticket.verification):
            if box.is_ticked and judge(check_in(box.text), case).state is State.REFUTED:
                file = set_box(file, number, is_ticked=False)
                proofs = tuple(proof for proof in sighting.proofs if f'"{box.text}"' not in proof)
                sighting = replace(sighting, proofs=proofs)
        file = with_sighting(file, sighting)
    return file


def _with_ticks(file: TicketFile, case: Case) -> tuple[TicketFile, BoxReasons, BoxReasons]:
    """(the file with every proven box ticked, the ticked boxes, the boxes left open)."""
    ticked, left = [], []
    for number, box in enumerate(file.ticket.verification):
        if box.is_ticked:
            continue
        proof = judge(check_in(box.text), case)
        if proof.state is State.PROVEN:
            file = set_box(file, number, is_ticked=True)
            ticked.append((box.text, proof.reason))
        else:
            left.append((box.text, proof.reason))
    return file, tuple(ticked), tuple(left)


def _closing(case: Case, run: Run) -> tuple[Status | None, str]:
    """(CLOSED if the run shows that the finding is gone, the reason why it does or does not)."""
    fingerprint = case.ticket.fingerprint
    has_only_source = case.sighting.run is None and bool(case.sighting.confirmed)
    if not fingerprint or has_only_source:      # what no run has shown, no run can show to be gone
        return None, ""
    if fingerprint in case.observations.fingerprints:
        return None, "it still occurs, and a comment in the source accepts it"
    frames = case.covering
    objection = case.observations.gap or too_short(case)
    if not objection and not frames:
        objection = f"{case.ticket.function or 'its place'} was not compiled in {run.name}"
    if not objection and case.family == "TT1":
        objection = case.unlogged
    if not objection and case.successors:
        objection = possible_successor(case.successors[0])
    if objection:
        return None, f"not seen, but {objection}"
    return Status.CLOSED, f"not in {run.name}, where {frames[0].qualname} was compiled"
