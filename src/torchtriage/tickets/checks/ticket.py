"""Problems within a single ticket: unknown words, implausible dates, a stale status, garbled text."""

import datetime
import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from torchtriage.findings.model import Severity
from torchtriage.text import row
from torchtriage.tickets.checks.matching import base_name
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.model import ENDED, Problem, Status, Verdict

MAX_LISTED = 4
_WAITING = frozenset({Status.OPEN, Status.INVESTIGATING, Status.FIX_IN_PROGRESS})
# The other ended statuses mean that no fix was needed, so there is nothing to verify.
_DONE = frozenset({Status.CLOSED, Status.FIXED, Status.ALREADY_FIXED})

# UTF-8 bytes that were decoded as Windows-1252. Only the lead bytes of accented letters, punctuation, arrows and emoji:
# other pairs also occur in correct text, as `É»` does.
_HIGH = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xC0))
_GARBLED = re.compile(f"[ÂÃ][{re.escape(_HIGH)}]|[âï][{re.escape(_HIGH)}]{{2}}|ð[{re.escape(_HIGH)}]{{3}}")
_BETWEEN_WORDS = re.compile(r"[ \t|`*]+")     # without the no-break space, which is half of a garbled one


def ticket_problems(file: TicketFile, today: datetime.date) -> Iterator[Problem]:
    yield from _word_problems(file)
    yield from _status_problems(file)
    yield from _date_problems(file, today)


def line_of(file: TicketFile, field: str, review: int | None = None) -> int | None:
    """The line of a ticket's field, or of the heading of one of its reviews."""
    if review is not None:
        sections = file.reading.of("review")
        heading = sections[review].heading if review < len(sections) else None
        return heading.number if heading else None
    entry = file.reading.entry(field)
    return entry.line.number if entry else None


def problem(file: TicketFile, field: str, kind: str, message: str, review: int | None = None) -> Problem:
    """A problem at the line of a ticket's field, or of one of its reviews."""
    return Problem(path=str(file.path), line=line_of(file, field, review), kind=kind, message=message)


def is_ended(file: TicketFile) -> bool:
    return file.ticket.status.lower() in ENDED


def _word_problems(file: TicketFile) -> Iterator[Problem]:
    ticket = file.ticket
    words: list[tuple[str, str, Iterable[str], int | None]] = [
        ("status", ticket.status, list(Status), None),
        ("severity", ticket.severity, [severity.name for severity in Severity], None),
        *(("verdict", review.verdict, list(Verdict), nth) for nth, review in enumerate(ticket.reviews)),
    ]
    for label, word, allowed, nth in words:
        if not word and nth is None and line_of(file, label) is None:
            continue        # the row is missing, which is already a problem of the file
        by_key = {each.lower(): str(each) for each in allowed}
        if word.lower() not in by_key:
            near = difflib.get_close_matches(word.lower(), by_key, n=1)
            hint = f"did you mean {by_key[near[0]]}?" if near else f"use one of {row(by_key.values())}"
            yield problem(file, label, f"unknown-{label}", f"{ticket.id} has the unknown {label} {word!r}; {hint}", nth)


def _status_problems(file: TicketFile) -> Iterator[Problem]:
    ticket = file.ticket
    status = ticket.status.lower()
    num_boxes = len(ticket.verification)
    num_open = sum(not box.is_ticked for box in ticket.verification)
    if status in _WAITING and num_boxes and not num_open:
        message = f"{ticket.id} is {status}, but every verification box is ticked; set it to fixed or closed"
        yield problem(file, "status", "stale-status", message)
    elif status in _DONE and num_open:
        message = f"{ticket.id} is {status}, but {num_open} of {num_boxes} verification boxes are not ticked"
        hint = "tick the verified boxes, or reopen the ticket"
        yield problem(file, "status", "stale-status", f"{message}; {hint}")


def _date_problems(file: TicketFile, today: datetime.date) -> Iterator[Problem]:
    ticket = file.ticket
    dates: list[tuple[str, str, int | None]] = [("created", ticket.created, None), ("updated", ticket.updated, None)]
    dates += [("review", review.date, nth) for nth, review in enumerate(ticket.reviews)]
    created = date_of(ticket.created)
    for label, text, nth in dates:
        date = date_of(text)
        subject = f"{ticket.id}: the date of a review" if label == "review" else f"{ticket.id}: the {label} date"
        if date is None and text.strip():
            message = f"{subject} must have the form YYYY-MM-DD, got {text!r}; correct it"
            yield problem(file, label, "date-unreadable", message, nth)
        elif date and date > today:
            message = f"{subject} is {date}, which is after today ({today}); correct it"
            yield problem(file, label, "date-in-future", message, nth)
        if date and created and date < created:
            message = f"{subject} is {date}, before the ticket was created ({created}); correct one of the two"
            yield problem(file, label, "date-order", message, nth)


def date_of(text: str) -> datetime.date | None:
    match = re.match(r"\d{4}-\d{2}-\d{2}\b", text.strip().strip("`*"))
    try:
        return datetime.date.fromisoformat(match[0]) if match else None
    except ValueError:
        return None


def date_year_problems(files: Sequence[TicketFile]) -> Iterator[Problem]:
    """Tickets of one report folder, dated the same day of different years with none in between: one year is a typo."""
    by_folder: dict[str, list[tuple[datetime.date, TicketFile]]] = defaultdict(list)
    for file in files:
        report = file.ticket.report_file.strip("` ")
        folder = report.removesuffix(base_name(report))
        created = date_of(file.ticket.created)
        if folder and created:
            by_folder[folder].append((created, file))
    for folder, dated_files in by_folder.items():
        yield from _years_apart(folder, dated_files)


def _years_apart(folder: str, dated_files: Sequence[tuple[datetime.date, TicketFile]]) -> Iterator[Problem]:
    by_day: dict[datetime.date, list[TicketFile]] = defaultdict(list)
    for date, file in dated_files:
        by_day[date].append(file)
    for one, other in pairwise(sorted(by_day)):     # a date in between means that work simply continued
        if (one.month, one.day) != (other.month, other.day):
            continue
        usual, odd = (one, other) if len(by_day[one]) >= len(by_day[other]) else (other, one)
        others = row(sorted(file.ticket.id for file in by_day[usual]), MAX_LISTED)
        for file in by_day[odd]:
            message = (
                f"{file.ticket.id} is dated {odd}, but tickets from the same folder {folder} are dated {usual} "
                f"({others}); correct the wrong year"
            )
            yield problem(file, "created", "date-year-apart", message)


def mojibake_problems(path: str, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.split("\n"), start=1):
        if words := garbled_word(line):
            garbled, original = words
            message = f"{garbled!r} was probably {original!r} before it was read in the wrong encoding; correct it"
            yield Problem(path=path, line=number, kind="mojibake", message=message)


def garbled_word(line: str) -> tuple[str, str] | None:
    """(the first garbled word of a line, the word that it probably was)."""
    if line.isascii():
        return None
    for word in _BETWEEN_WORDS.split(line):
        original = _GARBLED.sub(lambda match: _original(match[0]), word)
        if original != word:
            return word, original
    return None


def _original(text: str) -> str:
    """The text whose UTF-8 bytes were decoded as Windows-1252."""
    raw = b"".join(bytes([ord(char)]) if ord(char) < 0x100 else char.encode("cp1252") for char in text)
    return raw.decode("utf-8", "ignore") or text
