"""Find what went wrong between tickets and reports; each kind of problem is one row of the table below.

| kind | what it means |
|---|---|
| count-mismatch | the severity summary counts other than the detailed table lists |
| too-few-named | a row of the severity summary names fewer findings than it counts |
| row-missing | a finding is in a file's table and not in the detailed one, or the other way round |
| row-differs | the two tables give a finding other lines or another file |
| two-severities | one finding has two severities, in two tables or in a report and a ticket |
| two-ids | a report and a ticket hold one finding under two IDs, and neither names the other |
| wrong-priority | a recommendation stands under a priority that its finding does not have |
| risk-severity | a cross-cutting risk has another severity than the finding or ticket it is about |
| date-order | a ticket was updated, or reviewed, before it was created |
| date-in-future | a date is later than today |
| date-year-apart | tickets of one report folder share day and month, and not the year |
| date-unreadable | a date is not written as YYYY-MM-DD |
| code-not-in-file | code quoted under What's wrong is not in the file of a ticket that has not ended |
| lines-moved | the quoted code stands at other lines than the ticket says |
| file-missing | files that tickets name are not below the root, so what they quote was not compared; a note, not an error |
| stale-status | a ticket is open though every verification box is ticked, or done though boxes are open |
| unknown-status, unknown-severity, unknown-verdict | a word that is not on the list |
| duplicate-id, duplicate-fingerprint, duplicate-finding | two tickets, or two rows, for one thing |
| mojibake | text that was decoded with the wrong encoding |
| report-unreadable | a report that cannot be read as text |

What the reader of a ticket could not read (a broken table, a merge conflict) is passed on under the kind it gave it.
"""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchtriage.tickets.batches.parse import BatchReport, parse_batch
from torchtriage.tickets.checks.code import code_problems
from torchtriage.tickets.checks.pairs import duplicate_problems, report_and_ticket_problems
from torchtriage.tickets.checks.report import report_problems
from torchtriage.tickets.checks.ticket import date_year_problems, mojibake_problems, ticket_problems
from torchtriage.tickets.files.store import decoded
from torchtriage.tickets.model import Problem, TicketFile

NOTES = frozenset({"file-missing"})     # worth saying, and no reason to fail


def check_paths(files: Sequence[TicketFile], reports: Sequence[Path], root: Path, today: datetime.date) -> list[Problem]:
    """Every problem in these tickets and reports, by path and line."""
    found = [problem for file in files for problem in file.problems]
    for file in files:
        found += ticket_problems(file, today)
        found += mojibake_problems(str(file.path), file.text)
    found += date_year_problems(files)
    found += duplicate_problems(files)
    found += code_problems(files, root)
    for path in reports:
        found += _in_report(path, files)
    unique = {(problem.path, problem.line or 0, problem.kind, problem.message): problem for problem in found}
    return [unique[key] for key in sorted(unique)]


def _in_report(path: Path, files: Sequence[TicketFile]) -> Iterator[Problem]:
    try:
        text = decoded(path.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        message = f"a batch report was asked for, and this cannot be read: {reason}; name another file or convert it"
        yield Problem(path=str(path), line=None, kind="report-unreadable", message=message)
        return
    report: BatchReport = parse_batch(text)
    yield from mojibake_problems(str(path), text)
    yield from report_problems(str(path), report)
    yield from report_and_ticket_problems(str(path), report, files)
