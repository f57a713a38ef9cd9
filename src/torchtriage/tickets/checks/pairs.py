"""The same finding in two places: two tickets for it, or a ticket with a report that disagrees about it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from torchtriage.text import row
from torchtriage.tickets.batches.parse import BatchReport, FindingRow
from torchtriage.tickets.checks.matching import alike, base_name, code_names, ids_in, same_lines, same_name
from torchtriage.tickets.checks.report import row_texts
from torchtriage.tickets.checks.ticket import is_ended, problem
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.model import Problem, Ticket
from torchtriage.tickets.naming import batch_in_id, batch_of

MIN_RISK_NAMES = 2      # many findings share a single code name


def duplicate_problems(files: Sequence[TicketFile]) -> Iterator[Problem]:
    """Two tickets with the same ID, the same fingerprint, or the same place and a similar text.

    Each pair is reported once, by its clearest sign.
    """
    reported: set[tuple[str, str]] = set()
    for kind, hint in (
        ("id", "give one of them a new ID"), ("fingerprint", "keep one and end the other as its duplicate"),
    ):
        for value, (first, *others) in _groups(files, kind).items():
            for file in others:
                pair = (str(first.path), str(file.path))
                if pair not in reported:
                    same = f"{file.ticket.id} has the same {kind} as {first.ticket.id} in {first.path}"
                    yield problem(file, "id", f"duplicate-{kind}", f"{same}: {value}; {hint}")
                reported.add(pair)
    yield from _similar_tickets([file for file in files if not is_ended(file)], reported)


def _similar_tickets(files: Sequence[TicketFile], reported: set[tuple[str, str]]) -> Iterator[Problem]:
    """Tickets that look like an earlier one; the first of a group stands for the others."""
    distinct: list[TicketFile] = []
    for other in files:
        for one in distinct:
            if (str(one.path), str(other.path)) in reported or _are_distinct(one.ticket, other.ticket):
                continue
            if place := _shared_place(one.ticket, other.ticket):
                signs = f"same file {place}, overlapping lines, same category, similar summary"
                message = f"{other.ticket.id} looks like a duplicate of {one.ticket.id} in {one.path} ({signs})"
                hint = "end one of them, or name them as related if they are distinct"
                yield problem(other, "id", "duplicate-finding", f"{message}; {hint}")
                break
        else:
            distinct.append(other)


def _groups(files: Sequence[TicketFile], field: str) -> dict[str, list[TicketFile]]:
    groups: dict[str, list[TicketFile]] = defaultdict(list)
    for file in files:
        value = str(getattr(file.ticket, field))
        if value:
            groups[value].append(file)
    return groups


def _names(ticket: Ticket, ticket_id: str) -> bool:
    """Whether a ticket names this ID as related."""
    return any(relation.ticket_id == ticket_id for relation in ticket.related)


def _are_distinct(one: Ticket, other: Ticket) -> bool:
    """Whether both have a fingerprint (their pairs are compared by it), or one names the other as related."""
    if one.fingerprint and other.fingerprint:
        return True
    return _names(one, other.id) or _names(other, one.id)


def _shared_place(one: Ticket, other: Ticket) -> str:
    """The file in which two tickets describe the same finding; empty if they differ.

    Full paths are compared, as a project has many __init__.py.
    """
    shared = [file for file in one.files if file in other.files]
    is_same = (
        shared and one.categories & other.categories and same_lines(one.lines, other.lines)
        and alike(one.summary or one.title, other.summary or other.title)
    )
    return shared[0] if is_same else ""


def report_and_ticket_problems(path: str, report: BatchReport, files: Sequence[TicketFile]) -> Iterator[Problem]:
    """Contradictions between the findings of a report and their tickets, under the same ID or different IDs."""
    ticket_ids = {file.ticket.id for file in files}
    texts = row_texts(report)
    for finding in report.findings:
        for file in files:
            if finding.id == file.ticket.id:
                yield from _severity_problem(path, finding, file, "")
            elif finding.id not in ticket_ids and (signs := _same_finding(finding, texts[finding.id], file.ticket)):
                yield from _severity_problem(path, finding, file, f" (the same finding: {signs})")
                yield from _id_problem(path, finding, file, signs)
    yield from _risk_problems(path, report, files)


def _severity_problem(path: str, finding: FindingRow, file: TicketFile, signs: str) -> Iterator[Problem]:
    ticket = file.ticket
    if finding.severity and ticket.severity and finding.severity.upper() != ticket.severity.upper():
        message = (
            f"{finding.id} is {finding.severity} here, but {ticket.severity} in ticket {ticket.id} in {file.path}"
            f"{signs}; keep one severity"
        )
        yield Problem(path=path, line=finding.line, kind="two-severities", message=message)


def _id_problem(path: str, finding: FindingRow, file: TicketFile, signs: str) -> Iterator[Problem]:
    if not _names(file.ticket, finding.id):
        message = (
            f"{finding.id} here and ticket {file.ticket.id} in {file.path} are the same finding under two IDs ({signs})"
            f"; use one ID, or name {finding.id} in the ticket's related findings"
        )
        yield Problem(path=path, line=finding.line, kind="two-ids", message=message)


def _same_finding(finding: FindingRow, text: str, ticket: Ticket) -> str:
    """The signs that a row and a ticket are the same finding: batch, file, lines and words; empty if they differ."""
    names = [base_name(name) for name in ticket.files]
    is_other_batch = batch_in_id(finding.id) not in ("", batch_of(ticket))
    if base_name(finding.file) not in names or is_other_batch or not same_lines(finding.lines, ticket.lines):
        return ""
    issues = text.split("\n")
    if not any(alike(issue, phrase) for issue in issues for phrase in (ticket.title, ticket.summary)):
        return ""
    lines = f", lines {' and '.join(dict.fromkeys((finding.lines, ticket.lines)))}" if ticket.lines else ""
    return f"same file {base_name(finding.file)}{lines}, similar text {ticket.title!r}"


def _risk_problems(path: str, report: BatchReport, files: Sequence[TicketFile]) -> Iterator[Problem]:
    """A cross-cutting risk against the findings and tickets that it names by ID, or that name all of its code."""
    texts = row_texts(report)
    batches = {batch_in_id(finding.id) for finding in report.findings}
    candidates = [(finding.id, finding.severity, texts[finding.id]) for finding in report.findings]
    for ticket in (file.ticket for file in files):
        if batch_of(ticket) in batches and ticket.id not in texts:
            text = f"`{ticket.function}` {ticket.summary} {ticket.wrong}"
            candidates.append((ticket.id, ticket.severity, text))
    for risk in report.risks:
        description = f"{risk.risk} {risk.details}"
        ids, names = ids_in(description), code_names(description)
        subjects = []
        for candidate_id, severity, text in candidates:
            if candidate_id in ids or (not ids and _has_all(names, text)):
                subjects.append((candidate_id, severity))
        if risk.severity and subjects and all(severity.upper() != risk.severity.upper() for _, severity in subjects):
            others = row(f"{subject} ({severity})" for subject, severity in subjects)
            message = f"the risk {risk.risk!r} is {risk.severity}, but it is about {others}; keep one severity"
            yield Problem(path=path, line=risk.line, kind="risk-severity", message=message)


def _has_all(names: Sequence[str], text: str) -> bool:
    """Whether a text contains all of these code names, and there are enough of them to identify a finding."""
    if len(names) < MIN_RISK_NAMES:
        return False
    others = code_names(text)
    return all(any(same_name(name, other) for other in others) for name in names)
