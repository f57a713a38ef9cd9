"""Reads a ticket from Markdown, however it was written, and says what it could not read."""

import re
from collections.abc import Iterator
from pathlib import Path

from torchtriage.findings.model import Category
from torchtriage.tickets.files.reading import METADATA, Entry, Reading, boxes, entries, items, key_of, label_of, read
from torchtriage.tickets.files.trouble import troubles
from torchtriage.tickets.markdown.lines import TEXT, Line, Section, title_text
from torchtriage.tickets.markdown.passages import IMPACT, read_passage
from torchtriage.tickets.markdown.tables import listed, undressed
from torchtriage.tickets.model import Problem, Relation, Review, Ticket, TicketFile

KINDS = ("related", "duplicate", "blocks", "blocked-by")
_ID = r"`?(?P<id>(?=[\w-]*\d)[A-Za-z]\w*(?:-\w+)+)`?"
_KIND = "|".join(kind.replace("-", "[- ]") for kind in KINDS)
_RELATED = re.compile(
    rf"(?:\*\*)?(?:(?P<before>{_KIND})\b(?:\s+(?:to|of|by))?:?)?(?:\*\*)?:?\s*(?:\*\*)?{_ID}(?:\*\*)?"
    rf"(?:\s*\((?P<after>{_KIND})\))?\s*(?::|-|–|—)?\s*(?P<note>.*)$", re.I,
)
_ROLE = re.compile(r"\((.*)\)\s*$")
_NOTHING = re.compile(r"[\s*_(]*(?:none|n/a|nothing|-)?[\s*_.)]*$", re.I)
_FINGERPRINT = re.compile(r"fingerprint=(\S+)$")


def parse(text: str, path: Path) -> TicketFile:
    """The ticket in a text; any text has one, an empty one if need be."""
    reading = read(text)
    return TicketFile(path=path, text=text, ticket=ticket_of(reading), problems=tuple(_problems(reading, str(path))))


def is_ticket(file: TicketFile) -> bool:
    """Whether the file is meant to be a ticket: it has the heading, or a Ticket ID."""
    return bool(file.ticket.id) or any(section.title != title_text(section.title) for section in read(file.text).of("title"))


def ticket_of(reading: Reading) -> Ticket:
    title = reading.first("title")
    plain = {name: _value(reading.entry(name)) for name in (*METADATA, "lines", "function", "report_file")}
    files, section = reading.entry("files"), reading.entry("report_section")
    wrong, impact = _description(reading)
    return Ticket(
        title=title_text(title.title) if title else "", **plain,
        files=listed(files.raw) if files else (), report_section=section.raw.strip() if section else "",
        summary=_summary(reading), categories=frozenset(c for c, _ in _categories(reading) if c),
        wrong=wrong, impact=impact, fix=_passage(reading.first("fix")),
        verification=tuple(at.box for s in reading.of("verification") for at in boxes(s.lines)),
        related=tuple(relation for _, relation in _related(reading) if relation), reviews=tuple(_review(s) for s in reading.of("review")),
        fingerprint=fingerprint_of(reading),
    )


def fingerprint_of(reading: Reading) -> str:
    found = (_FINGERPRINT.match(mark) for _, mark in reading.marks())
    return next((match[1] for match in found if match), "")


def _value(entry: Entry | None) -> str:
    return undressed(entry.raw) if entry else ""


def _passage(section: Section | None) -> str:
    return read_passage(section.lines) if section else ""


def _description(reading: Reading) -> tuple[str, str]:
    """(what is wrong, impact): the impact has a section of its own, or a bold label within the description."""
    section = reading.first("wrong") or reading.first("description")
    impact = reading.first("impact")
    if section is None or impact is not None:
        return _passage(section), _passage(impact)
    for index, line in enumerate(section.lines):
        label = IMPACT.match(line.text) if line.kind == TEXT else None
        if label:
            return read_passage(section.lines[:index]), read_passage(section.lines[index + 1:], first=label[1])
    return _passage(section), ""


def _summary(reading: Reading) -> str:
    section = reading.first("summary")
    lines = section.lines if section else []
    for index, line in enumerate(lines):
        label = label_of(line)
        if label and "summary" in key_of(label[1]):
            return _sentence([line.text[label.end():], *(later.text for later in _paragraph(lines[index + 1:]))])
    # Without the label it is the first paragraph.
    start = next((i for i, line in enumerate(lines) if not line.is_blank), 0)
    return _sentence([line.text for line in _paragraph(lines[start:])])


def _sentence(parts: list[str]) -> str:
    return " ".join(part.strip() for part in parts).strip()


def _paragraph(lines: list[Line]) -> Iterator[Line]:
    for line in lines:
        if line.is_blank or line.kind != TEXT or label_of(line) or boxes([line]):
            return
        yield line


def _categories(reading: Reading) -> Iterator[tuple[Category | None, Line]]:
    """The ticked categories; None for one that is not among the twelve."""
    for section in reading.of("summary", "category"):
        for at in boxes(section.lines):
            if at.box.is_ticked:
                yield category_of(at.box.text), at.line


def category_of(label: str) -> Category | None:
    """The category that a label begins with: the labels on tickets are longer than our names."""
    return next((c for c in Category if label.casefold().startswith(c.value.casefold())), None)


def _related(reading: Reading) -> Iterator[tuple[Line, Relation | None]]:
    for section in reading.of("related"):
        for line, text in items(section.lines):
            match = _RELATED.match(text)
            if match:
                kind = (match["after"] or match["before"] or KINDS[0]).lower().replace(" ", "-")
                yield line, Relation(ticket_id=match["id"], kind=kind, note=match["note"].strip())
            elif not _NOTHING.match(text):
                yield line, None


def _review(section: Section) -> Review:
    role = _ROLE.search(section.title)
    at = next((i for i, line in enumerate(section.lines) if _is_evaluation(line)), len(section.lines))
    values = {e.key: undressed(e.raw) for e in reversed(list(entries(section, section.lines[:at])))}
    if at < len(section.lines):
        label = label_of(section.lines[at])
        first = section.lines[at].text[label.end() if label else 0:]
        evaluation = read_passage(section.lines[at + 1:], first=first)
    else:
        table = {e.line.number for e in entries(section, section.lines)}
        evaluation = read_passage([line for line in section.lines if line.number not in table and not line.text.lstrip().startswith("|")])
    return Review(
        role=role[1].strip() if role else "", verdict=values.get("verdict", ""), reviewer=values.get("reviewer", ""),
        date=values.get("date", ""), evaluation=evaluation,
    )


def _is_evaluation(line: Line) -> bool:
    label = label_of(line)
    return label is not None and key_of(label[1]) == "evaluation"


def _problems(reading: Reading, path: str) -> Iterator[Problem]:
    """What is wrong with the form of the file, by line."""
    found = [
        *troubles(reading),
        *((line.number, "unknown-category", f"no such category: {line.text.strip()!r}")
          for category, line in _categories(reading) if category is None),
        *((line.number, "unread-relation", f"this names no ticket: {line.text.strip()!r}")
          for line, relation in _related(reading) if relation is None),
    ]
    for number, kind, message in sorted(found, key=lambda entry: (entry[0] or 0, entry[1])):
        yield Problem(path=path, line=number, kind=kind, message=message)

