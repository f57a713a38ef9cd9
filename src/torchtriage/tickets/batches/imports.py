"""Takes in tickets from elsewhere: ticket files as they are, and the findings that a batch report lists."""

import re
from collections.abc import Iterator
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.tickets.batches.parse import BatchReport, FindingRow, parse_batch
from torchtriage.tickets.checks.matching import base_name
from torchtriage.tickets.files.read import is_ticket, parse
from torchtriage.tickets.files.store import Store, read_text
from torchtriage.tickets.files.trouble import CONFLICT
from torchtriage.tickets.markdown.tables import undressed
from torchtriage.tickets.model import Ticket, TicketFile
from torchtriage.tickets.naming import batch_in

_AGENTS = {"pytorch": r"\bpytorch\b", "drl": r"\bdrl\b|reinforcement", "codereview": r"\bcode review specialist\b"}
_LINE_MARK = re.compile(r"\bL(?=\d)")


def taken_in(store: Store, path: Path, today: str) -> Iterator[TicketFile | str]:
    """Each new ticket, or why something was left out."""
    try:
        text = read_text(path)
    except CommandError as error:
        yield str(error)
        return
    file = parse(text, path)
    if is_ticket(file):
        yield _added(store, file.ticket, path, path.read_bytes(), [p.kind for p in file.problems])
        return
    report = parse_batch(text)
    if not report.findings:
        yield f"{path} is no ticket (no '# Finding Ticket:' heading, no Ticket ID) and no batch report (no table of findings)"
    for row in report.findings:
        yield _added(store, _ticket(row, report, path, today), path)


def _added(store: Store, ticket: Ticket, path: Path, data: bytes | None = None, problems: list[str] | None = None) -> TicketFile | str:
    if CONFLICT in (problems or ()):
        return f"{path} has a merge conflict in it; resolve it first"
    if not ticket.id:
        return f"{path} has no Ticket ID; add the row to its metadata table"
    holder = next((file for file in store.every if file.ticket.id.casefold() == ticket.id.casefold()), None)
    if holder:
        return f"{path}: {ticket.id} is there already ({holder.path}); left out"
    try:
        return store.add(ticket, data)
    except CommandError as error:
        return str(error)


def _ticket(row: FindingRow, report: BatchReport, path: Path, today: str) -> Ticket:
    """What the report says of one finding, and nothing more: the row of the detailed table, and the longer text of the file's own."""
    batch = batch_in(row.id)
    longer = next((each.issue for each in report.per_file if each.id == row.id), "")
    files = [file for file in report.files if base_name(file) == base_name(row.file)] or [row.file]
    lines = _LINE_MARK.sub("", row.lines)
    return Ticket(
        id=row.id, title=undressed(row.issue), severity=row.severity, batch="" if batch is None else str(batch), agent=_agent(report.title),
        created=today, updated=today, files=tuple(file for file in files if file.strip("-")), lines="" if lines == "-" else lines,
        summary=row.issue, wrong=longer, report_file=str(path), report_section='"Detailed Findings Table"',
    )


def _agent(title: str) -> str:
    return next((agent for agent, pattern in _AGENTS.items() if re.search(pattern, title, re.I)), "")
