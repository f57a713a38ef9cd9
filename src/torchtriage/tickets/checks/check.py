"""Find errors or contradictions in tickets, alone or beside their batch reports.

| kind | meaning |
|---|---|
| count-mismatch | the severity summary and the detailed table have different counts |
| too-few-named | a row of the severity summary names fewer findings than it counts |
| row-missing | a finding is in a file's table but not in the detailed one, or the other way round |
| row-differs | the two tables give a finding different lines or different files |
| two-severities | a finding has two severities, in two tables or in a report and a ticket |
| two-ids | a report and a ticket describe the same finding under two IDs, and neither names the other |
| wrong-priority | a recommendation is under a priority that its finding does not have |
| risk-severity | a cross-cutting risk and the finding or ticket it is about have different severities |
| date-order | a ticket was updated, or reviewed, before it was created |
| date-in-future | a date is later than today |
| date-year-apart | tickets of one report folder share day and month, but not the year |
| date-unreadable | a date does not have the form YYYY-MM-DD |
| code-not-in-file | code quoted under What's Wrong is not in the file of a ticket that has not ended |
| lines-moved | the quoted code is at other lines than the ticket says |
| file-missing | files that tickets name are not below the root, so their code was not compared; a note, not an error |
| stale-status | a ticket is open although every verification box is ticked, or done although boxes are not |
| unknown-status, unknown-severity, unknown-verdict | a word that is not valid for this field |
| duplicate-id, duplicate-fingerprint, duplicate-finding | two tickets, or two rows, for the same finding |
| mojibake | text that was decoded with the wrong encoding |
| report-unreadable | a report that cannot be read as text |

Problems found while a ticket is read (a broken table, a merge conflict) are reported with the kind they have there.
"""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchtriage.files import read_regular
from torchtriage.tickets.batches.parse import BatchFile, parse_batch_file
from torchtriage.tickets.checks.code import code_problems
from torchtriage.tickets.checks.pairs import duplicate_problems, report_and_ticket_problems
from torchtriage.tickets.checks.report import report_problems
from torchtriage.tickets.checks.ticket import date_year_problems, mojibake_problems, ticket_problems
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.files.store import MAX_FILE_BYTES, decode, unreadable_reason
from torchtriage.tickets.model import Problem

NOTES = frozenset({"file-missing"})     # reported, but not a reason to fail


def check(
    files: Sequence[TicketFile], reports: Sequence[BatchFile | Problem], root: Path, today: datetime.date,
) -> list[Problem]:
    """Every problem in these tickets and reports, by path and line.

    A report that could not be read is passed as the problem that says so.
    """
    problems = [problem for file in files for problem in file.problems]
    for file in files:
        problems += ticket_problems(file, today)
        problems += mojibake_problems(str(file.path), file.text)
    problems += date_year_problems(files)
    problems += duplicate_problems(files)
    problems += code_problems(files, root)
    for report in reports:
        problems += [report] if isinstance(report, Problem) else _problems_in_report(report, files)
    unique = {(problem.path, problem.line or 0, problem.kind, problem.message): problem for problem in problems}
    return [unique[key] for key in sorted(unique)]


def read_report(path: Path) -> BatchFile | Problem:
    """The batch report in a file; a problem if the file cannot be read."""
    try:
        return parse_batch_file(decode(read_regular(path, MAX_FILE_BYTES, follow=True)), path)
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read as a batch report: {unreadable_reason(error)}; name another file or convert it"
        return Problem(path=str(path), line=None, kind="report-unreadable", message=message)


def _problems_in_report(file: BatchFile, tickets: Sequence[TicketFile]) -> Iterator[Problem]:
    path = str(file.path)
    yield from mojibake_problems(path, file.text)
    yield from report_problems(path, file.report)
    yield from report_and_ticket_problems(path, file.report, tickets)
