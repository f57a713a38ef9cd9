"""Changes one field of a ticket's file and leaves every other byte as it is."""

from collections.abc import Sequence
from pathlib import Path

from torchtriage.errors import TriageError
from torchtriage.tickets.files.read import parse
from torchtriage.tickets.files.reading import IN_CODE, METADATA, Entry, Reading, boxes, read
from torchtriage.tickets.files.render import RULE, fingerprint_line, review_lines, row
from torchtriage.tickets.markdown.lines import Line
from torchtriage.tickets.markdown.passages import content
from torchtriage.tickets.markdown.tables import code_spans, dressed_as_code, dressed_plain
from torchtriage.tickets.model import Review, TicketFile

SEEN_HEADING = "## Seen by torchtriage"
SEEN_START = "seen"
SEEN_END = "end"


def set_field(file: TicketFile, name: str, text: str) -> TicketFile:
    """The file with a new value in its metadata table; a row that is missing is added at the end of the table."""
    reading = read(file.text)
    entry = reading.entry(name)
    if entry is None:
        return _with_row(file, reading, name, text)
    if entry.num_cells != 2:
        raise TriageError(
            f"{file.path}:{entry.line.number}: the row of {METADATA[name][0]!r} has {entry.num_cells} cells, not 2; "
            "repair it by hand, it is left as it is"
        )
    return _spliced(file, entry.start, entry.end, _dressed_like(entry, name, text))


def set_box(file: TicketFile, number: int, *, is_ticked: bool) -> TicketFile:
    """The file with one verification box, counted from 0, ticked or not."""
    found = [at for section in read(file.text).of("verification") for at in boxes(section.lines)]
    if found[number].box.is_ticked == is_ticked:
        return file
    return _spliced(file, found[number].start, found[number].end, "x" if is_ticked else " ")


def add_review(file: TicketFile, review: Review) -> TicketFile:
    """The file with one more cross-review: after the last one, else before the appendix, else at the end."""
    reading = read(file.text)
    reviews = reading.of("review")
    after: Sequence[Line] = [reviews[-1].heading, *reviews[-1].lines] if reviews and reviews[-1].heading else _before_appendix(reading)
    return _inserted(file, reading, content(after)[-1:], ["", RULE, "", *review_lines(review)])


def set_fingerprint(file: TicketFile, fingerprint: str) -> TicketFile:
    """The file with this fingerprint, hidden below the title."""
    reading = read(file.text)
    for line, mark in reading.marks():
        if mark.startswith("fingerprint="):
            return _spliced(file, line.start, line.start + len(line.text), fingerprint_line(fingerprint))
    title = reading.first("title")
    after = [title.heading] if title and title.heading else []
    if not after:
        return _spliced(file, 0, 0, fingerprint_line(fingerprint) + reading.newline * 2)
    return _inserted(file, reading, after, ["", fingerprint_line(fingerprint)])


def seen_lines(file: TicketFile) -> list[str]:
    """What stands in the part of the file that torchtriage writes."""
    reading = read(file.text)
    part = _seen_part(file.path, reading)
    return [line.text for line in reading.lines if part and part[0].number < line.number < part[1].number]


def set_seen(file: TicketFile, lines: Sequence[str]) -> TicketFile:
    """The file with these lines in the part that torchtriage writes, which is made at the end if there is none."""
    reading = read(file.text)
    part = _seen_part(file.path, reading)
    if part:
        return _spliced(file, part[0].end, part[1].start, "".join(line + reading.newline for line in lines))
    block = ["", RULE, "", SEEN_HEADING, "", f"<!-- torchtriage: {SEEN_START} -->", *lines, f"<!-- torchtriage: {SEEN_END} -->"]
    return _inserted(file, reading, content(reading.lines)[-1:], block)


def _seen_part(path: Path, reading: Reading) -> tuple[Line, Line] | None:
    marks = [(line, mark) for line, mark in reading.marks() if mark in (SEEN_START, SEEN_END)]
    if not marks:
        return None
    if [mark for _, mark in marks] != [SEEN_START, SEEN_END]:
        raise TriageError(
            f"{path}:{marks[0][0].number}: the part that torchtriage writes must begin with one comment 'torchtriage: seen' and end with "
            "one 'torchtriage: end'; put them back, or delete that part"
        )
    return marks[0][0], marks[1][0]


def _before_appendix(reading: Reading) -> list[Line]:
    ends = [section.heading.number for section in reading.of("appendix", "seen") if section.heading]
    return [line for line in reading.lines if line.number < min(ends, default=len(reading.lines) + 1)]


def _with_row(file: TicketFile, reading: Reading, name: str, text: str) -> TicketFile:
    table = reading.table
    if not table:
        raise TriageError(f"{file.path}: no metadata table to put {METADATA[name][0]!r} in; add '## Ticket Metadata' with a table by hand")
    dressed = dressed_as_code(text) if name in IN_CODE else dressed_plain(text)
    return _inserted(file, reading, [table[-1].line], [row(METADATA[name][0], dressed)])


def _dressed_like(entry: Entry, name: str, text: str) -> str:
    """The new value in backticks if the old one was, with the spaces that were around it."""
    old = entry.raw.strip()
    in_code = bool(code_spans(old)) if old else name in IN_CODE
    dressed = dressed_as_code(text) if in_code else dressed_plain(text)
    if not old:
        return f" {dressed} " if entry.is_row and dressed else (entry.raw or "") + dressed
    at = entry.raw.index(old)
    return entry.raw[:at] + dressed + entry.raw[at + len(old):]


def _inserted(file: TicketFile, reading: Reading, after: Sequence[Line], lines: Sequence[str]) -> TicketFile:
    """The file with whole lines after the last of `after`, at the end of the file if there is none."""
    at = after[-1].end if after else len(file.text)
    has_ending = file.text[:at].endswith(("\r", "\n")) or not file.text[:at]
    new = "".join(line + reading.newline for line in "\n".join(lines).split("\n"))
    return _spliced(file, at, at, new if has_ending else reading.newline + new)


def _spliced(file: TicketFile, start: int, end: int, new: str) -> TicketFile:
    return parse(file.text[:start] + new + file.text[end:], file.path)


