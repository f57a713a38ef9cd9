"""A run held against the tickets there are: new tickets for what has none, an update for each of the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchtriage.diagnosis.suppress import comments_in, suppressed
from torchtriage.findings.model import Finding
from torchtriage.recording.recording import Recording
from torchtriage.tickets.files.read import parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import Ticket, TicketFile
from torchtriage.tickets.naming import OURS, next_id
from torchtriage.tickets.runs.call_graph import Project
from torchtriage.tickets.runs.from_finding import ticket_from
from torchtriage.tickets.runs.observed import Observed
from torchtriage.tickets.runs.seen_section import read_seen, run_of, seen_in, with_seen
from torchtriage.tickets.runs.update import Update, updated
from torchtriage.tickets.runs.verify import Case


class NewRun:
    """`findings` are those that no comment in the source accepts; `root` is the project's folder."""

    def __init__(self, recording: Recording, *, name: str, root: Path, today: str) -> None:
        self.observed = Observed(recording)
        self.findings: Sequence[Finding] = suppressed(self.observed.findings, comments_in(recording))[0]
        self.run = run_of(recording, name)
        self._today = today
        self._project = Project(root)
        self._roots = (str(root), str(recording.launcher.cwd or ""))
        self._seen = {f.fingerprint: seen_in(f, recording, self.run, self._roots) for f in self.findings}

    def update(self, file: TicketFile, known: frozenset[str]) -> tuple[Case, Update]:
        """What the run says about a ticket; `known` are the fingerprints that have a ticket."""
        case = Case(ticket=file.ticket, observed=self.observed, seen=read_seen(file), project=self._project, known=known)
        return case, updated(file, case, self.run, self._seen.get(file.ticket.fingerprint), self._today)

    def tickets(self, findings: Sequence[Finding], batch: int, taken: Sequence[str], ticket_ids: Mapping[str, str]) -> list[TicketFile]:
        """A ticket for each finding, with the text of its file; `ticket_ids` are the tickets of other fingerprints."""
        ids: dict[str, str] = {}
        for finding in findings:
            ids[finding.fingerprint] = next_id(batch, OURS, [*taken, *ids.values()])
        return [self._file(self._ticket(finding, ids[finding.fingerprint], batch, {**ticket_ids, **ids})) for finding in findings]

    def _ticket(self, finding: Finding, ticket_id: str, batch: int, ticket_ids: Mapping[str, str]) -> Ticket:
        return ticket_from(
            finding, ticket_id=ticket_id, batch=str(batch), today=self._today, source=self.run.name, roots=self._roots,
            ticket_ids=ticket_ids,
        )

    def _file(self, ticket: Ticket) -> TicketFile:
        return with_seen(parse(render(ticket), Path(ticket.id)), self._seen[ticket.fingerprint])
