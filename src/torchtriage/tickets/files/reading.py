"""A ticket's text taken apart: every field with the place of its value, so that it can be read and replaced on its own."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torchtriage.tickets.markdown.lines import COMMENT, FREE_TEXT, TEXT, Line, Section, scan, sections
from torchtriage.tickets.markdown.passages import OURS
from torchtriage.tickets.markdown.tables import Row, row_of
from torchtriage.tickets.model import Box

# Field of Ticket: the key that we write, and how else it is written.
METADATA = {
    "id": ("Ticket ID", "finding id"), "severity": ("Severity", "priority"), "status": ("Status",), "batch": ("Batch",),
    "agent": ("Agent",), "domain": ("Domain",), "assignee": ("Assignee", "assigned to"), "created": ("Created",), "updated": ("Updated",),
}
LOCATION = {
    "files": ("File(s)", "file", "files", "path"), "lines": ("Line(s)", "line", "lines"),
    "function": ("Function/Class", "function", "class", "function / class", "symbol"),
}
REFERENCE = {"report_file": ("Report file", "report"), "report_section": ("Section",)}
IN_CODE = frozenset({"id", "severity", "status", "agent", "domain", "files", "lines", "function", "report_file", "verdict"})

_LABEL = re.compile(r" {0,3}\*\*([^*]+?)\s*(?::\*\*|\*\*:)[ \t]*")
_BOX = re.compile(r"\s*[-*+]\s+\[([ xX]?)\](?:\s+(.*))?$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])(?:\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `key: value`, from a row or from a bold label; `start` and `end` enclose the raw value."""

    section: Section
    key: str
    raw: str
    start: int
    end: int
    line: Line
    num_cells: int = 2
    is_row: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxAt:
    """A checkbox and the place of what stands between its brackets."""

    box: Box
    start: int
    end: int
    line: Line


@dataclass(slots=True, kw_only=True)
class Reading:
    """A text and its parts."""

    text: str
    lines: list[Line]
    unclosed: list[Line]
    sections: list[Section]
    entries: list[Entry] = field(default_factory=list)

    def of(self, *names: str) -> list[Section]:
        return [section for section in self.sections if section.name in names]

    def first(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def entry(self, name: str) -> Entry | None:
        """The value of a field: from its own section, else from wherever else it stands."""
        own, names = _home(name)
        found = [e for e in self.entries if e.key in names]
        elsewhere = (e for e in found if e.num_cells == 2)      # in a wider table the key is the head of a column
        return next((e for e in found if e.section.name == own), next(elsewhere, None))

    @property
    def table(self) -> list[Row]:
        """The rows of the metadata table."""
        section = self.first("metadata")
        identity = self.entry("id") or self.entry("status")
        if section is None and identity is not None and identity.is_row:
            section = identity.section
        return rows(section.lines) if section else []

    @property
    def newline(self) -> str:
        ending = re.search(r"\r\n|\r|\n", self.text)
        return ending[0] if ending else "\n"

    def marks(self) -> Iterator[tuple[Line, str]]:
        """Our hidden comments, each on a line of its own."""
        for line in self.lines:
            found = OURS.match(line.text) if line.kind == COMMENT and line.opens else None
            if found:
                yield line, found[1]


def read(text: str) -> Reading:
    lines, unclosed = scan(text)
    reading = Reading(text=text, lines=lines, unclosed=unclosed, sections=sections(lines))
    for section in reading.sections:
        if section.name not in FREE_TEXT and section.name != "seen":
            reading.entries.extend(entries(section, section.lines))
    return reading


def entries(section: Section, lines: Sequence[Line]) -> Iterator[Entry]:
    """Every row with a key and every bold label in these lines."""
    for line in lines:
        label = label_of(line)
        row = row_of(line)
        if label:
            start = line.start + label.end()
            raw = line.text[label.end():]
            yield Entry(section=section, key=key_of(label[1]), raw=raw, start=start, end=start + len(raw), line=line, is_row=False)
        elif row is not None and row.cells and not row.is_delimiter:
            value = row.cells[1] if len(row.cells) > 1 else None
            start, end = (value.start, value.end) if value else (line.start, line.start)
            yield Entry(
                section=section, key=key_of(row.cells[0].value), raw=value.raw if value else "", start=start, end=end, line=line,
                num_cells=len(row.cells),
            )


def rows(lines: Sequence[Line]) -> list[Row]:
    """The first table in these lines."""
    found: list[Row] = []
    for line in lines:
        row = row_of(line)
        if row is not None:
            found.append(row)
        elif found:
            break
    return found


def label_of(line: Line) -> re.Match[str] | None:
    """`**Label:** ` at the start of a line; the value is what follows the match."""
    return _LABEL.match(line.text) if line.kind == TEXT else None


def boxes(lines: Sequence[Line]) -> list[BoxAt]:
    """The checkboxes in these lines; an indented line below one goes on with its text."""
    found = []
    for index, line in enumerate(lines):
        match = _BOX.match(line.text) if line.kind == TEXT else None
        if match:
            text = " ".join([match[2] or "", *continued(lines, index)]).strip()
            start, end = line.start + match.start(1), line.start + match.end(1)
            found.append(BoxAt(box=Box(text=text, is_ticked=match[1] in ("x", "X")), start=start, end=end, line=line))
    return found


def items(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """The list items in these lines, each as one line of text."""
    found = []
    for index, line in enumerate(lines):
        match = _ITEM.match(line.text) if line.kind == TEXT else None
        if match:
            found.append((line, " ".join([line.text[match.end():].strip(), *continued(lines, index)]).strip()))
    return found


def continued(lines: Sequence[Line], index: int) -> list[str]:
    """The text of the lines that go on with the list item at `index`."""
    return [line.text.strip() for line in _while(lines[index + 1:], _goes_on)]


def _while(lines: Sequence[Line], test: Callable[[Line], bool]) -> Iterator[Line]:
    for line in lines:
        if not test(line):
            return
        yield line


def _goes_on(line: Line) -> bool:
    return line.kind == TEXT and line.text[:2].isspace() and not line.is_blank and not _ITEM.match(line.text)


def key_of(text: str) -> str:
    return " ".join(text.strip("*_`: \t").casefold().split())


def _home(name: str) -> tuple[str, tuple[str, ...]]:
    """The section that a field belongs to, and its keys."""
    for section, fields in (("metadata", METADATA), ("location", LOCATION), ("reference", REFERENCE)):
        if name in fields:
            return section, tuple(key_of(key) for key in fields[name])
    raise KeyError(name)
