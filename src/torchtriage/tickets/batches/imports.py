"""Import tickets from elsewhere: ticket files unchanged, or one new ticket per finding of a batch report."""

import re
from collections.abc import Iterator
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.findings.catalogue import codes, rule
from torchtriage.findings.model import Category
from torchtriage.tickets.batches.advice import category_of, fixes
from torchtriage.tickets.batches.parse import BatchReport, FindingRow, parse_batch
from torchtriage.tickets.batches.report import is_derived
from torchtriage.tickets.checks.matching import base_name
from torchtriage.tickets.files.read import CONFLICT, TicketFile, parse
from torchtriage.tickets.files.store import Store, decode, read_text, write_new
from torchtriage.tickets.markdown.tables import plain_value
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.naming import agent_of, batch_in_id

_AGENTS = {"pytorch": r"\bpytorch\b", "drl": r"\bdrl\b|reinforcement", "codereview": r"\bcode review specialist\b"}
_LINE_MARK = re.compile(r"\bL(?=\d)")


def import_file(store: Store, path: Path, today: str) -> Iterator[TicketFile | Path | str]:
    """Each new ticket, the kept report, or the reason why something was not imported."""
    try:
        text = read_text(path)
    except CommandError as error:
        yield str(error)
        return
    file = parse(text, path)
    if file.is_ticket:
        if any(problem.kind == CONFLICT for problem in file.problems):
            yield f"{path} has an unresolved merge conflict; resolve it first"
        else:
            yield _add(store, file.ticket, path, path.read_bytes())
        return
    report = parse_batch(text)
    if not report.findings:
        yield (
            f"{path} is neither a ticket (no '# Finding Ticket:' heading, no Ticket ID) "
            "nor a batch report (no table of findings)"
        )
        return
    advised = fixes(report)
    domain = report.title.partition("Review:")[2].strip() if is_derived(text) else ""
    known = {each.casefold() for each in store.ids} if is_derived(text) else set()
    for row in report.findings:
        if row.id.casefold() in known:      # the report was written from this very ticket
            continue
        ticket = _ticket(row, report, path, today)
        yield _add(store, ticket.with_(fix=advised.get(row.id, ""), domain=domain), path)
    yield from _kept_report(store, path)


def _kept_report(store: Store, path: Path) -> Iterator[Path | str]:
    """The report itself, byte for byte, in the folder of the tickets, where `check` and `report` read it."""
    target = store.folder / path.name
    if store.folder.resolve() in path.resolve().parents:
        return
    try:
        data = path.read_bytes()
        if target.exists() and target.read_bytes() == data:
            return
        write_new(target, data)
    except (CommandError, OSError) as error:
        yield f"the report was not kept: {error}"
        return
    store.others[target] = decode(data)
    yield target


def _add(store: Store, ticket: Ticket, path: Path, data: bytes | None = None) -> TicketFile | str:
    if not ticket.id:
        return f"{path} has no Ticket ID; add the row to its metadata table"
    holder = next((file for file in store.every if file.ticket.id.casefold() == ticket.id.casefold()), None)
    if holder:
        return f"{path}: {ticket.id} already exists ({holder.path}); not imported"
    try:
        return store.add(ticket, data)
    except CommandError as error:
        return str(error)


def _ticket(row: FindingRow, report: BatchReport, path: Path, today: str) -> Ticket:
    """A ticket with the row of the detailed table, the longer text of the file's own table and what their words say."""
    longer_text = next((each.issue for each in report.per_file if each.id == row.id), "")
    files = _files(row, report) or [row.file]
    lines = _LINE_MARK.sub("", row.lines)
    return Ticket(
        id=row.id, title=plain_value(row.issue), severity=row.severity, batch=batch_in_id(row.id),
        agent=_agent(report.title) or agent_of(row.id), created=today, updated=today,
        files=tuple(file for file in files if file.strip("-")), lines="" if lines == "-" else lines,
        summary=row.issue, wrong=longer_text, categories=_categories(row, longer_text), report_file=str(path),
        report_section=_section(row),
    )


def _files(row: FindingRow, report: BatchReport) -> list[str]:
    """The reviewed files that a row names: those that end with it, otherwise those with the same file name."""
    name = row.file.replace("\\", "/")
    ending = [file for file in report.files if f"/{file}".replace("\\", "/").endswith(f"/{name}")]
    return ending or [file for file in report.files if base_name(file) == base_name(row.file)]


def _categories(row: FindingRow, longer_text: str) -> frozenset[Category]:
    """The category of the rule that a row names; otherwise the one that its words name."""
    if row.rule in codes():
        return frozenset({rule(row.rule).category})
    return category_of((row.issue, longer_text))


def _section(row: FindingRow) -> str:
    section = '"Detailed Findings Table"'
    return f"{row.rule} {rule(row.rule).slug}, {section}" if row.rule in codes() else section


def _agent(title: str) -> str:
    return next((agent for agent, pattern in _AGENTS.items() if re.search(pattern, title, re.I)), "")
