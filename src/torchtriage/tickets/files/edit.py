"""Change one field of a ticket's file; every other byte stays."""

from collections.abc import Sequence
from pathlib import Path

from torchtriage.errors import TriageError
from torchtriage.text import counted
from torchtriage.tickets.files.read import METADATA, Entry, Reading, TicketFile, parse
from torchtriage.tickets.files.render import IN_CODE, RULE, field_cell, review_lines, table_row
from torchtriage.tickets.markdown.lines import TextLine
from torchtriage.tickets.markdown.passages import content
from torchtriage.tickets.markdown.tables import code_cell, code_spans, text_cell
from torchtriage.tickets.model import Review

SEEN_HEADING = "## Seen by torchtriage"
SEEN_START = "seen"
SEEN_END = "end"


def set_field(file: TicketFile, name: str, text: str) -> TicketFile:
    """The file with a new value in its metadata table; a missing row is added at the end of the table."""
    entry = file.reading.entry(name)
    if entry is None:
        return _with_row(file, name, text)
    if entry.num_cells != 2:
        raise TriageError(
            f"{file.path}:{entry.line.number}: the row {METADATA[name][0]!r} has {counted(entry.num_cells, 'cell')} "
            "instead of 2; repair it by hand, the file is unchanged"
        )
    return _splice(file, entry.start, entry.end, _format_like(entry, name, text))


def set_box(file: TicketFile, number: int, *, is_ticked: bool) -> TicketFile:
    """The file with one verification box, counted from 0, ticked or not."""
    box = file.reading.checkboxes[number]
    if box.is_ticked == is_ticked:
        return file
    return _splice(file, box.start, box.end, "x" if is_ticked else " ")


def add_review(file: TicketFile, review: Review) -> TicketFile:
    """The file with one more cross-review: after the last review, else before the appendix, else at the end."""
    reviews = file.reading.of("review")
    if reviews and reviews[-1].heading:
        before: Sequence[TextLine] = [reviews[-1].heading, *reviews[-1].lines]
    else:
        before = _before_appendix(file.reading)
    return _insert(file, content(before)[-1:], ["", RULE, "", *review_lines(review)])


def seen_lines(file: TicketFile) -> list[str]:
    """The lines of the machine-written section; empty if there is none."""
    bounds = _seen_bounds(file.path, file.reading)
    if bounds is None:
        return []
    start, end = bounds
    return [line.text for line in file.reading.lines if start.number < line.number < end.number]


def set_seen(file: TicketFile, lines: Sequence[str]) -> TicketFile:
    """The file with these lines in its machine-written section, which is added at the end if there is none."""
    bounds = _seen_bounds(file.path, file.reading)
    if bounds:
        start, end = bounds
        return _splice(file, start.end, end.start, "".join(line + file.reading.newline for line in lines))
    start_marker, end_marker = f"<!-- torchtriage: {SEEN_START} -->", f"<!-- torchtriage: {SEEN_END} -->"
    block = ["", RULE, "", SEEN_HEADING, "", start_marker, *lines, end_marker]
    return _insert(file, content(file.reading.lines)[-1:], block)


def _seen_bounds(path: Path, reading: Reading) -> tuple[TextLine, TextLine] | None:
    """The two marker lines around the machine-written section."""
    markers = [(line, marker) for line, marker in reading.markers() if marker in (SEEN_START, SEEN_END)]
    if not markers:
        return None
    if [marker for _, marker in markers] != [SEEN_START, SEEN_END]:
        raise TriageError(
            f"{path}:{markers[0][0].number}: the section that torchtriage writes must begin with one comment "
            "'torchtriage: seen' and end with one 'torchtriage: end'; restore them, or delete the section"
        )
    return markers[0][0], markers[1][0]


def _before_appendix(reading: Reading) -> list[TextLine]:
    ends = [section.heading.number for section in reading.of("appendix", "seen") if section.heading]
    return [line for line in reading.lines if line.number < min(ends, default=len(reading.lines) + 1)]


def _with_row(file: TicketFile, name: str, text: str) -> TicketFile:
    key = METADATA[name][0]
    table = file.reading.table
    if not table:
        raise TriageError(
            f"{file.path}: no metadata table to hold {key!r}; add '## Ticket Metadata' with a table by hand"
        )
    return _insert(file, [table[-1].line], [table_row(key, field_cell(name, text))])


def _format_like(entry: Entry, name: str, text: str) -> str:
    """The new value in backticks if the old one was, with the same surrounding spaces."""
    old = entry.raw.strip()
    in_code = bool(code_spans(old)) if old else name in IN_CODE
    cell = code_cell(text) if in_code else text_cell(text)
    if not old:
        return f" {cell} " if entry.is_row and cell else entry.raw + cell
    at = entry.raw.index(old)
    return entry.raw[:at] + cell + entry.raw[at + len(old):]


def _insert(file: TicketFile, after: Sequence[TextLine], lines: Sequence[str]) -> TicketFile:
    """The file with new lines after the last line of `after`, or at the end of the file if `after` is empty."""
    newline = file.reading.newline
    at = after[-1].end if after else len(file.text)
    has_ending = file.text[:at].endswith(("\r", "\n")) or not file.text[:at]
    new = "".join(line + newline for line in "\n".join(lines).split("\n"))
    return _splice(file, at, at, new if has_ending else newline + new)


def _splice(file: TicketFile, start: int, end: int, new: str) -> TicketFile:
    return parse(file.text[:start] + new + file.text[end:], file.path)
