"""What can be wrong in one ticket by itself: its words, its dates, its status, its encoding."""

import datetime
import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from torchtriage.findings.model import Severity
from torchtriage.tickets.checks.matching import base_name
from torchtriage.tickets.checks.mojibake import garbled_word
from torchtriage.tickets.files.reading import read
from torchtriage.tickets.model import ENDED, Problem, Status, TicketFile, Verdict

_WAITING = frozenset({Status.OPEN, Status.INVESTIGATING, Status.FIX_IN_PROGRESS})
_DONE = frozenset({Status.CLOSED, Status.FIXED, Status.ALREADY_FIXED})    # the other ends need no fix, so no verification


def ticket_problems(file: TicketFile, today: datetime.date) -> Iterator[Problem]:
    yield from _word_problems(file)
    yield from _status_problems(file)
    yield from _date_problems(file, today)


def line_of(file: TicketFile, field: str, review: int | None = None) -> int | None:
    """The line of a ticket's field, or the heading of one of its reviews."""
    reading = read(file.text)
    if review is not None:
        headings = [section.heading for section in reading.of("review")]
        heading = headings[review] if review < len(headings) else None
        return heading.number if heading else None
    entry = reading.entry(field)
    return entry.line.number if entry else None


def problem(file: TicketFile, field: str, kind: str, message: str, review: int | None = None) -> Problem:
    return Problem(path=str(file.path), line=line_of(file, field, review), kind=kind, message=message)


def some(items: Sequence[str], most: int = 4) -> str:
    """The first few items and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def _word_problems(file: TicketFile) -> Iterator[Problem]:
    ticket = file.ticket
    words: list[tuple[str, str, Iterable[str], int | None]] = [
        ("status", ticket.status, list(Status), None),
        ("severity", ticket.severity, [severity.name for severity in Severity], None),
        *(("verdict", review.verdict, list(Verdict), nth) for nth, review in enumerate(ticket.reviews)),
    ]
    for label, word, allowed, nth in words:
        if not word and nth is None and line_of(file, label) is None:
            continue        # the row is missing, which the reader has said
        valid = [str(each) for each in allowed]
        if word.lower() not in [each.lower() for each in valid]:
            near = difflib.get_close_matches(word.lower(), [each.lower() for each in valid], n=1)
            nearest = next((each for each in valid if near and each.lower() == near[0]), "")
            do = f"did you mean {nearest}?" if nearest else f"use one of {', '.join(valid)}"
            yield problem(file, label, f"unknown-{label}", f"{ticket.id} has the {label} {word!r}, which is not on the list; {do}", nth)


def _status_problems(file: TicketFile) -> Iterator[Problem]:
    ticket = file.ticket
    status = ticket.status.lower()
    num_open = sum(not box.is_ticked for box in ticket.verification)
    if status in _WAITING and ticket.verification and not num_open:
        message = f"{ticket.id} is {status}, though all {len(ticket.verification)} verification boxes are ticked; set it to fixed or closed"
        yield problem(file, "status", "stale-status", message)
    elif status in _DONE and num_open:
        asked = f"{num_open} of {len(ticket.verification)} verification boxes are open"
        yield problem(file, "status", "stale-status", f"{ticket.id} is {status}, though {asked}; tick what was verified, or reopen it")


def _date_problems(file: TicketFile, today: datetime.date) -> Iterator[Problem]:
    ticket = file.ticket
    dates: list[tuple[str, str, int | None]] = [("created", ticket.created, None), ("updated", ticket.updated, None)]
    dates += [("review", review.date, nth) for nth, review in enumerate(ticket.reviews)]
    created = date_of(ticket.created)
    for label, written, nth in dates:
        date = date_of(written)
        what = "a review" if label == "review" else label
        if date is None and written.strip():
            message = f"{ticket.id}: {what} should have a date as YYYY-MM-DD, found {written!r}; write it so"
            yield problem(file, label, "date-unreadable", message, nth)
        elif date and date > today:
            message = f"{ticket.id}: {what} is dated {date}, which is after today ({today}); correct the date"
            yield problem(file, label, "date-in-future", message, nth)
        if date and created and date < created:
            message = f"{ticket.id}: {what} is dated {date}, before it was created ({created}); correct one of the two"
            yield problem(file, label, "date-order", message, nth)


def date_of(written: str) -> datetime.date | None:
    match = re.match(r"\d{4}-\d{2}-\d{2}\b", written.strip().strip("`*"))
    try:
        return datetime.date.fromisoformat(match[0]) if match else None
    except ValueError:
        return None


def date_year_problems(files: Sequence[TicketFile]) -> Iterator[Problem]:
    """Tickets from one report folder, on the same day of another year, and none in between: one of the years is a slip."""
    by_folder: dict[str, list[tuple[datetime.date, TicketFile]]] = defaultdict(list)
    for file in files:
        folder = file.ticket.report_file.strip("` ").removesuffix(base_name(file.ticket.report_file.strip("` ")))
        created = date_of(file.ticket.created)
        if folder and created:
            by_folder[folder].append((created, file))
    for folder, dated in by_folder.items():
        yield from _years_apart(folder, dated)


def _years_apart(folder: str, dated: Sequence[tuple[datetime.date, TicketFile]]) -> Iterator[Problem]:
    on_day: dict[datetime.date, list[TicketFile]] = defaultdict(list)
    for date, file in dated:
        on_day[date].append(file)
    days = sorted(on_day)
    for one, other in pairwise(days):      # neighbours: a date in between means that work simply went on
        if (one.month, one.day) != (other.month, other.day):
            continue
        usual, odd = (one, other) if len(on_day[one]) >= len(on_day[other]) else (other, one)
        others = some(sorted(file.ticket.id for file in on_day[usual]))
        for file in on_day[odd]:
            message = f"{file.ticket.id} is dated {odd}, and from the same folder {folder} {others}: {usual}; correct the wrong year"
            yield problem(file, "created", "date-year-apart", message)


def mojibake_problems(path: str, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.split("\n"), start=1):
        if garbled := garbled_word(line):
            message = f"{garbled[0]!r} was probably {garbled[1]!r} before it was read in the wrong encoding; write it so"
            yield Problem(path=path, line=number, kind="mojibake", message=message)


def is_ended(file: TicketFile) -> bool:
    return file.ticket.status.lower() in ENDED
