"""Read a ticket from Markdown: its fields with their positions, with everything malformed in it.

Tickets that people wrote in another form (other keys, order, levels, line endings) are read as well.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchtriage.findings.model import Category
from torchtriage.text import counted
from torchtriage.tickets.markdown.lines import COMMENT, TEXT, TextLine, scan
from torchtriage.tickets.markdown.lists import Checkbox, checkboxes, items, key_of, label_of
from torchtriage.tickets.markdown.passages import IMPACT_LABEL, MARKER, read_passage
from torchtriage.tickets.markdown.sections import FREE_TEXT, TicketSection, ticket_sections, title_text
from torchtriage.tickets.markdown.tables import TableRow, first_table, plain_value, plain_values, row_of
from torchtriage.tickets.model import Box, Problem, Relation, Review, Ticket

# Per field of Ticket: the key that torchtriage writes, then the other keys that are understood.
METADATA = {
    "id": ("Ticket ID", "finding id"), "severity": ("Severity", "priority"), "status": ("Status",), "batch": ("Batch",),
    "agent": ("Agent",), "domain": ("Domain",), "assignee": ("Assignee", "assigned to"), "created": ("Created",),
    "updated": ("Updated",),
}
LOCATION = {
    "files": ("File(s)", "file", "files", "path"), "lines": ("Line(s)", "line", "lines"),
    "function": ("Function/Class", "function", "class", "function / class", "symbol"),
}
REFERENCE = {"report_file": ("Report file", "report"), "report_section": ("Section",)}
RELATION_KINDS = ("related", "duplicate", "blocks", "blocked-by")
CONFLICT = "merge-conflict"

_HOMES = (("metadata", METADATA), ("location", LOCATION), ("reference", REFERENCE))
_REQUIRED = ("id", "severity", "status")
_ONCE = frozenset({"title", "metadata", "location", "summary", "wrong", "impact", "fix", "related"})
_ID = r"`?(?P<id>(?=[\w-]*\d)[A-Za-z]\w*(?:-\w+)+)`?"
_KIND = "|".join(kind.replace("-", "[- ]") for kind in RELATION_KINDS)
_RELATED = re.compile(
    rf"(?:\*\*)?(?:(?P<before>{_KIND})\b(?:\s+(?:to|of|by))?:?)?(?:\*\*)?:?\s*(?:\*\*)?{_ID}(?:\*\*)?"
    rf"(?:\s*\((?P<after>{_KIND})\))?\s*(?::|-|–|—)?\s*(?P<note>.*)$", re.I,
)
_ROLE = re.compile(r"\((.*)\)\s*$")
_NOTHING = re.compile(r"[\s*_(]*(?:none|n/a|nothing|-)?[\s*_.)]*$", re.I)
_FINGERPRINT = re.compile(r"fingerprint=(\S+)$")
_CONFLICT_START = re.compile(r"<{7}(?: |$)")
_CONFLICT_END = re.compile(r">{7}(?: |$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `key: value` from a table row or a bold label; `start` and `end` enclose the raw value."""

    section: TicketSection
    key: str
    raw: str
    start: int
    end: int
    line: TextLine
    num_cells: int = 2
    is_row: bool = True


@dataclass(slots=True, kw_only=True)
class Reading:
    """The structure of a ticket's text: lines, sections and entries, all with their positions."""

    text: str
    lines: list[TextLine]
    unclosed: list[TextLine]
    sections: list[TicketSection]
    entries: list[Entry] = field(default_factory=list)
    _by_name: dict[str, list[TicketSection]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for section in self.sections:
            self._by_name.setdefault(section.name, []).append(section)

    def of(self, *names: str) -> Sequence[TicketSection]:
        """The sections with these names, those of one name after those of the other."""
        if len(names) == 1:
            return self._by_name.get(names[0], [])
        return [section for name in names for section in self.of(name)]

    def first(self, name: str) -> TicketSection | None:
        return next(iter(self.of(name)), None)

    def entry(self, name: str) -> Entry | None:
        """The entry of a field: from the section it belongs to, otherwise from any other section."""
        home, keys = _home(name)
        candidates = [entry for entry in self.entries if entry.key in keys]
        for entry in candidates:
            if entry.section.name == home:
                return entry
        # In a table with more than two columns the key is the header of a column.
        return next((entry for entry in candidates if entry.num_cells == 2), None)

    @property
    def checkboxes(self) -> list[Checkbox]:
        """The boxes of the verification checklist."""
        return [box for section in self.of("verification") for box in checkboxes(section.lines)]

    @property
    def table(self) -> list[TableRow]:
        """The rows of the metadata table."""
        section = self.first("metadata")
        identity = self.entry("id") or self.entry("status")
        if section is None and identity is not None and identity.is_row:
            section = identity.section
        return first_table(section.lines) if section else []

    @property
    def newline(self) -> str:
        ending = re.search(r"\r\n|\r|\n", self.text)
        return ending[0] if ending else "\n"

    def markers(self) -> Iterator[tuple[TextLine, str]]:
        """(line, content) of each hidden torchtriage comment on a separate line."""
        for line in self.lines:
            match = MARKER.match(line.text) if line.kind == COMMENT and line.opens else None
            if match:
                yield line, match[1]


def read(text: str) -> Reading:
    """The structure of any text; nothing raises."""
    lines, unclosed = scan(text)
    reading = Reading(text=text, lines=lines, unclosed=unclosed, sections=ticket_sections(lines))
    for section in reading.sections:
        if section.name not in FREE_TEXT and section.name != "seen":
            reading.entries.extend(entries(section, section.lines))
    return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketFile:
    """A ticket, the text it was read from, and the problems found while reading it."""

    path: Path
    ticket: Ticket
    reading: Reading = field(default_factory=lambda: read(""), repr=False)
    problems: Sequence[Problem] = ()

    @property
    def text(self) -> str:
        return self.reading.text

    @property
    def is_ticket(self) -> bool:
        """Whether the file is meant to be a ticket: it has a ticket heading or a Ticket ID."""
        titles = [section.title for section in self.reading.of("title")]
        return bool(self.ticket.id) or any(title != title_text(title) for title in titles)


def parse(text: str, path: Path) -> TicketFile:
    """The ticket in a text; a text that is not a ticket gives an empty one."""
    reading = read(text)
    problems = tuple(_problems(reading, str(path)))
    return TicketFile(path=path, ticket=_ticket(reading), reading=reading, problems=problems)


def entries(section: TicketSection, lines: Sequence[TextLine]) -> Iterator[Entry]:
    """Every table row with a key and every bold label in these lines."""
    for line in lines:
        label = label_of(line)
        row = row_of(line)
        if label:
            start = line.start + label.end()
            raw = line.text[label.end():]
            yield Entry(
                section=section, key=key_of(label[1]), raw=raw, start=start, end=start + len(raw), line=line,
                is_row=False,
            )
        elif row is not None and row.cells and not row.is_delimiter:
            value = row.cells[1] if len(row.cells) > 1 else None
            start, end = (value.start, value.end) if value else (line.start, line.start)
            yield Entry(
                section=section, key=key_of(row.cells[0].value), raw=value.raw if value else "", start=start, end=end,
                line=line, num_cells=len(row.cells),
            )


def _home(name: str) -> tuple[str, tuple[str, ...]]:
    """(the section that a field belongs to, its keys)."""
    for section, fields in _HOMES:
        if name in fields:
            return section, tuple(key_of(key) for key in fields[name])
    raise KeyError(name)


def _ticket(reading: Reading) -> Ticket:
    title = reading.first("title")
    values = {name: _value(reading.entry(name)) for name in (*METADATA, "lines", "function", "report_file")}
    files, report_section = reading.entry("files"), reading.entry("report_section")
    wrong, impact = _description(reading)
    return Ticket(
        title=title_text(title.title) if title else "", **values,
        files=plain_values(files.raw) if files else (),
        report_section=report_section.raw.strip() if report_section else "",
        summary=_summary(reading),
        categories=frozenset(category for category, _ in _categories(reading) if category),
        wrong=wrong, impact=impact, fix=_passage(reading.first("fix")),
        verification=tuple(Box(text=box.text, is_ticked=box.is_ticked) for box in reading.checkboxes),
        related=tuple(relation for _, relation in _relations(reading) if relation),
        reviews=tuple(_review(section) for section in reading.of("review")),
        fingerprint=_fingerprint(reading),
    )


def _fingerprint(reading: Reading) -> str:
    for _, marker in reading.markers():
        match = _FINGERPRINT.match(marker)
        if match:
            return match[1]
    return ""


def _value(entry: Entry | None) -> str:
    return plain_value(entry.raw) if entry else ""


def _passage(section: TicketSection | None) -> str:
    return read_passage(section.lines) if section else ""


def _description(reading: Reading) -> tuple[str, str]:
    """(what is wrong, impact); the impact is a separate section or a bold label within the description."""
    section = reading.first("wrong") or reading.first("description")
    impact = reading.first("impact")
    if section is None or impact is not None:
        return _passage(section), _passage(impact)
    for index, line in enumerate(section.lines):
        label = IMPACT_LABEL.match(line.text) if line.kind == TEXT else None
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
    # Without the label, the summary is the first paragraph.
    start = next((i for i, line in enumerate(lines) if not line.is_blank), 0)
    return _sentence([line.text for line in _paragraph(lines[start:])])


def _sentence(parts: Sequence[str]) -> str:
    return " ".join(part.strip() for part in parts).strip()


def _paragraph(lines: Sequence[TextLine]) -> Iterator[TextLine]:
    for line in lines:
        if line.is_blank or line.kind != TEXT or label_of(line) or checkboxes([line]):
            return
        yield line


def _categories(reading: Reading) -> Iterator[tuple[Category | None, TextLine]]:
    """The ticked categories; None for a box that is not one of the twelve."""
    for section in reading.of("summary", "category"):
        for box in checkboxes(section.lines):
            if box.is_ticked:
                yield category_of(box.text), box.line


def category_of(label: str) -> Category | None:
    """The category whose name a label begins with: the labels on tickets are longer than the names."""
    return next((c for c in Category if label.casefold().startswith(c.value.casefold())), None)


def _relations(reading: Reading) -> Iterator[tuple[TextLine, Relation | None]]:
    """The related tickets; None for an item without a ticket ID."""
    for section in reading.of("related"):
        for line, text in items(section.lines):
            match = _RELATED.match(text)
            if match:
                kind = (match["after"] or match["before"] or RELATION_KINDS[0]).lower().replace(" ", "-")
                yield line, Relation(ticket_id=match["id"], kind=kind, note=match["note"].strip())
            elif not _NOTHING.match(text):
                yield line, None


def _review(section: TicketSection) -> Review:
    role = _ROLE.search(section.title)
    lines = section.lines
    at = next((i for i, line in enumerate(lines) if _is_evaluation(line)), len(lines))
    values = {entry.key: plain_value(entry.raw) for entry in reversed(list(entries(section, lines[:at])))}
    if at < len(lines):
        label = label_of(lines[at])
        evaluation = read_passage(lines[at + 1:], first=lines[at].text[label.end() if label else 0:])
    else:
        in_entries = {entry.line.number for entry in entries(section, lines)}
        rest = [line for line in lines if line.number not in in_entries and not line.text.lstrip().startswith("|")]
        evaluation = read_passage(rest)
    return Review(
        role=role[1].strip() if role else "", verdict=values.get("verdict", ""), reviewer=values.get("reviewer", ""),
        date=values.get("date", ""), evaluation=evaluation,
    )


def _is_evaluation(line: TextLine) -> bool:
    label = label_of(line)
    return label is not None and key_of(label[1]) == "evaluation"


_Flaw = tuple[int | None, str, str]     # line number, kind, message


def _problems(reading: Reading, path: str) -> Iterator[Problem]:
    """Everything malformed in a ticket, by line."""
    flaws = [
        *_conflicts(reading), *_unclosed_blocks(reading), *_missing_parts(reading), *_broken_rows(reading),
        *_repeated_sections(reading), *_unknown_items(reading),
    ]
    for number, kind, message in sorted(flaws, key=lambda flaw: (flaw[0] or 0, flaw[1])):
        yield Problem(path=path, line=number, kind=kind, message=message)


def _conflicts(reading: Reading) -> Iterator[_Flaw]:
    starts = [line for line in reading.lines if _CONFLICT_START.match(line.text)]
    if starts and any(_CONFLICT_END.match(line.text) for line in reading.lines):
        for line in starts:
            yield line.number, CONFLICT, "unresolved merge conflict"


def _unclosed_blocks(reading: Reading) -> Iterator[_Flaw]:
    for line in reading.unclosed:
        yield line.number, "unclosed-block", f"this block is never closed: {line.text.strip()!r}; it was read as text"


def _missing_parts(reading: Reading) -> Iterator[_Flaw]:
    title = reading.first("title")
    if title is None or not title_text(title.title):
        yield None, "missing-title", "no heading '# Finding Ticket: ...'"
    for name in _REQUIRED:
        if reading.entry(name) is None:
            yield None, f"missing-{name}", f"no row {METADATA[name][0]!r} in a metadata table"


def _broken_rows(reading: Reading) -> Iterator[_Flaw]:
    fields = {"metadata": METADATA, "location": LOCATION}
    by_section: dict[int, list[Entry]] = {}
    for entry in reading.entries:
        by_section.setdefault(id(entry.section), []).append(entry)
    for section in reading.of(*fields):
        names = {key_of(key): keys[0] for keys in fields[section.name].values() for key in keys}
        previous: set[str] = set()
        for entry in by_section.get(id(section), ()):
            name = names.get(entry.key)
            if not entry.is_row or not name:
                continue
            if entry.num_cells != 2:
                cells = counted(entry.num_cells, "cell")
                message = f"the row {name!r} has {cells} instead of 2; write a | inside a value as \\|"
                yield entry.line.number, "broken-table", message
            elif name in previous:
                yield entry.line.number, "broken-table", f"a second row {name!r}; only the first was read"
            previous.add(name)
        table = first_table(section.lines)
        if table and not any(row.is_delimiter for row in table):
            yield table[0].line.number, "broken-table", "this table has no |---|---| line below its header"


def _repeated_sections(reading: Reading) -> Iterator[_Flaw]:
    names: set[str] = set()
    for section in reading.sections:
        if section.name in _ONCE and section.name in names and section.heading:
            message = f"a second section {section.title!r}; only the first was read"
            yield section.heading.number, "repeated-section", message
        names.add(section.name)


def _unknown_items(reading: Reading) -> Iterator[_Flaw]:
    for category, line in _categories(reading):
        if category is None:
            yield line.number, "unknown-category", f"unknown category: {line.text.strip()!r}"
    for line, relation in _relations(reading):
        if relation is None:
            yield line.number, "unread-relation", f"no ticket ID in this item: {line.text.strip()!r}"
