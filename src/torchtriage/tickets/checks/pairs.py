"""One thing held twice: two tickets for one finding, or a ticket and a report that disagree about it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from torchtriage.tickets.batches.parse import BatchReport, FindingRow
from torchtriage.tickets.checks.matching import alike, base_name, batch_in_id, batch_of, code_names, ids_in, same_lines, same_name
from torchtriage.tickets.checks.report import row_texts
from torchtriage.tickets.checks.ticket import is_ended, problem
from torchtriage.tickets.model import Problem, Ticket, TicketFile

MIN_RISK_NAMES = 2      # a single code name is shared by many findings


def duplicate_problems(files: Sequence[TicketFile]) -> Iterator[Problem]:
    """Two tickets with one ID, one fingerprint, or for one place and text; a pair is reported once, by the surest sign."""
    seen: set[tuple[str, str]] = set()
    for kind, do in (("id", "give one of them a new ID"), ("fingerprint", "keep one and end the other as its duplicate")):
        for value, group in _groups(files, kind).items():
            for file in group[1:]:
                if (str(group[0].path), str(file.path)) not in seen:
                    message = f"{file.ticket.id} has the same {kind} as {group[0].ticket.id} in {group[0].path}: {value}; {do}"
                    yield problem(file, "id", f"duplicate-{kind}", message)
                seen.add((str(group[0].path), str(file.path)))
    for one, other in combinations([file for file in files if not is_ended(file)], 2):
        is_told = (str(one.path), str(other.path)) in seen or _known_apart(one.ticket, other.ticket)
        if not is_told and (place := _shared_place(one.ticket, other.ticket)):
            signs = f"same file {place}, shared lines, same category, like summary"
            message = f"{other.ticket.id} looks like {one.ticket.id} in {one.path} ({signs})"
            yield problem(other, "id", "duplicate-finding", f"{message}; end one, or name them as related if they are two")


def _groups(files: Sequence[TicketFile], field: str) -> dict[str, list[TicketFile]]:
    groups: dict[str, list[TicketFile]] = defaultdict(list)
    for file in files:
        value = str(getattr(file.ticket, field))
        if value:
            groups[value].append(file)
    return groups


def _known_apart(one: Ticket, other: Ticket) -> bool:
    """Each has a fingerprint of its own, or one names the other."""
    if one.fingerprint and other.fingerprint:
        return True
    return other.id in [relation.ticket_id for relation in one.related] or one.id in [relation.ticket_id for relation in other.related]


def _shared_place(one: Ticket, other: Ticket) -> str:
    """The file in which two tickets hold one finding; whole paths are compared, for one project has many __init__.py."""
    shared = [file for file in one.files if file in other.files]
    is_same = (
        shared and one.categories & other.categories and same_lines(one.lines, other.lines)
        and alike(one.summary or one.title, other.summary or other.title)
    )
    return shared[0] if is_same else ""


def report_and_ticket_problems(path: str, report: BatchReport, files: Sequence[TicketFile]) -> Iterator[Problem]:
    """Findings of a report against the tickets that hold them, under the same ID or another."""
    ticket_ids = {file.ticket.id for file in files}
    texts = row_texts(report)
    for row in report.findings:
        for file in files:
            if row.id == file.ticket.id:
                yield from _severity_problem(path, row, file, "")
            elif row.id not in ticket_ids and (why := _why_same(row, texts[row.id], file.ticket)):
                yield from _severity_problem(path, row, file, f" (one finding: {why})")
                yield from _id_problem(path, row, file, why)
    yield from _risk_problems(path, report, files)


def _severity_problem(path: str, row: FindingRow, file: TicketFile, why: str) -> Iterator[Problem]:
    ticket = file.ticket
    if row.severity and ticket.severity and row.severity.upper() != ticket.severity.upper():
        message = f"{row.id} is {row.severity} here and {ticket.severity} in ticket {ticket.id} in {file.path}{why}; keep one severity"
        yield Problem(path=path, line=row.line, kind="two-severities", message=message)


def _id_problem(path: str, row: FindingRow, file: TicketFile, why: str) -> Iterator[Problem]:
    if row.id not in [relation.ticket_id for relation in file.ticket.related]:
        found = f"{row.id} here and ticket {file.ticket.id} in {file.path} are one finding under two IDs ({why})"
        message = f"{found}; use one, or name {row.id} in the ticket's related findings"
        yield Problem(path=path, line=row.line, kind="two-ids", message=message)


def _why_same(row: FindingRow, text: str, ticket: Ticket) -> str:
    """What shows that a row and a ticket are one finding: batch, file, lines and words; empty if they are two."""
    names = [base_name(name) for name in ticket.files]
    is_other_batch = batch_in_id(row.id) not in ("", batch_of(ticket))
    if base_name(row.file) not in names or is_other_batch or not same_lines(row.lines, ticket.lines):
        return ""
    issues = text.split("\n")
    if not any(alike(issue, said) for issue in issues for said in (ticket.title, ticket.summary)):
        return ""
    lines = f", lines {' and '.join(dict.fromkeys((row.lines, ticket.lines)))}" if ticket.lines else ""
    return f"same file {base_name(row.file)}{lines}, like text {ticket.title!r}"


def _risk_problems(path: str, report: BatchReport, files: Sequence[TicketFile]) -> Iterator[Problem]:
    """A cross-cutting risk against the findings and tickets that name all of its code, or that it names by ID."""
    texts = row_texts(report)
    batches = {batch_in_id(row.id) for row in report.findings}
    about = [(row.id, row.severity, texts[row.id]) for row in report.findings]
    about += [
        (file.ticket.id, file.ticket.severity, f"`{file.ticket.function}` {file.ticket.summary} {file.ticket.wrong}")
        for file in files if batch_of(file.ticket) in batches and file.ticket.id not in texts
    ]
    for risk in report.risks:
        said = f"{risk.risk} {risk.details}"
        named, names = ids_in(said), code_names(said)
        meant = [(each, severity) for each, severity, text in about if each in named or (not named and _has_all(names, text))]
        if risk.severity and meant and all(severity.upper() != risk.severity.upper() for _, severity in meant):
            others = ", ".join(f"{each} ({severity})" for each, severity in meant)
            message = f"the risk {risk.risk!r} is {risk.severity}, and what it is about is {others}; keep one severity"
            yield Problem(path=path, line=risk.line, kind="risk-severity", message=message)


def _has_all(names: Sequence[str], text: str) -> bool:
    found = code_names(text)
    return len(names) >= MIN_RISK_NAMES and all(any(same_name(name, other) for other in found) for name in names)
