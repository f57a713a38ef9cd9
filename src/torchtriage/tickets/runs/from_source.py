"""Apply the findings of lint to the tickets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchtriage.findings.model import Finding
from torchtriage.tickets.files.edit import set_box, set_field
from torchtriage.tickets.files.read import TicketFile, parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import ENDED, Box
from torchtriage.tickets.naming import RECORDING_AGENT, next_id
from torchtriage.tickets.runs.call_graph import Project
from torchtriage.tickets.runs.from_finding import ticket_from
from torchtriage.tickets.runs.seen_section import read_sighting, with_sighting
from torchtriage.tickets.runs.update import TicketUpdate, confirmed_by
from torchtriage.tickets.runs.verify import State, judge_source

SOURCE_NAME = "torchtriage lint"


class LintedSource:
    """The findings of lint to apply to tickets; `paths` are what was linted, `root` is the folder of the project."""

    def __init__(self, findings: Sequence[Finding], *, paths: Sequence[Path], root: Path, today: str) -> None:
        self.findings = findings
        self.name = SOURCE_NAME
        self.roots = (str(root),)
        self._project = Project(root, paths)
        self._today = today

    def update(self, file: TicketFile) -> TicketUpdate:
        """The ticket with every box ticked that the source proves; a ticket that has ended is left as it is."""
        ticket = file.ticket
        if ticket.status.lower() in ENDED:
            return TicketUpdate(file=file)
        ticked, left = [], []
        for number, box in enumerate(ticket.verification):
            if box.is_ticked:
                continue
            proof = judge_source(box.text, ticket, self._project)
            if proof.state is State.PROVEN:
                file = set_box(file, number, is_ticked=True)
                ticked.append((box.text, proof.reason))
            else:
                left.append((box.text, proof.reason))
        if ticked:
            sighting = read_sighting(file)
            proofs = [*sighting.proofs, *(f'{self.name} ticked "{text}": {why}' for text, why in ticked)]
            file = with_sighting(set_field(file, "updated", self._today), replace(sighting, proofs=tuple(proofs)))
        return TicketUpdate(file=file, ticked=tuple(ticked), left=tuple(left))

    def tickets(
        self, findings: Sequence[Finding], batch: int, ids_in_use: Sequence[str], ticket_ids: Mapping[str, str],
    ) -> list[TicketFile]:
        """A ticket per finding, with the text of its file; `ticket_ids` are the tickets of other fingerprints."""
        files: list[TicketFile] = []
        for finding in findings:
            new_id = next_id(batch, RECORDING_AGENT, [*ids_in_use, *(file.ticket.id for file in files)])
            ticket = ticket_from(
                finding, ticket_id=new_id, batch=str(batch), today=self._today, source=self.name, roots=self.roots,
                ticket_ids=ticket_ids,
            )
            ticket = ticket.with_(verification=(*ticket.verification, _box(finding)))
            files.append(confirmed_by(parse(render(ticket), Path(new_id)), finding, self.name, self.roots))
        return files


def _box(finding: Finding) -> Box:
    """For a person to tick: lint that is given fewer files reports less, so its silence proves nothing by itself."""
    return Box(text=f"torchtriage lint does not report {finding.code} in {finding.location.function or 'this file'}")
