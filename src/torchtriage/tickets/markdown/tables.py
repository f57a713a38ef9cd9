"""The rows of Markdown tables, down to the values in their cells."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.tickets.markdown.lines import TEXT, TextLine

_PIPE = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r"\s*:?-+:?\s*$")
_BOLD = re.compile(r"\*\*(?!\s)([^*]+)(?<!\s)\*\*$")
_SPAN = re.compile(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)")
_BETWEEN = re.compile(r"\s*(?:,|;|<br ?/?>)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`start` and `end` enclose everything between the pipes."""

    start: int
    end: int
    raw: str

    @property
    def value(self) -> str:
        return plain_value(self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One line of a table, with the position of each cell."""

    line: TextLine
    cells: tuple[Cell, ...]

    @property
    def is_delimiter(self) -> bool:
        return all(_DELIMITER.match(cell.raw) for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """One row of a table with a header; `cells` is keyed by column name in lower case."""

    line: int
    cells: Mapping[str, str]

    def cell(self, *names: str) -> str:
        """The value of the first of these columns that the table has; empty if it has none of them."""
        return next((self.cells[name] for name in names if name in self.cells), "")


def row_of(line: TextLine) -> TableRow | None:
    """The table row in a line; None for a line without a pipe, or in code."""
    if line.kind != TEXT:
        return None
    ends = [match.start() for match in _PIPE.finditer(line.text)]
    if not ends:
        return None
    starts = [0] + [end + 1 for end in ends]
    ends.append(len(line.text))
    cells = [
        Cell(start=line.start + start, end=line.start + end, raw=line.text[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]
    if not cells[0].raw.strip():
        cells = cells[1:]
    if cells and not cells[-1].raw.strip() and line.text.rstrip().endswith("|"):
        cells = cells[:-1]
    return TableRow(line=line, cells=tuple(cells))


def first_table(lines: Sequence[TextLine]) -> list[TableRow]:
    """The rows of the first table in these lines, header and delimiter included."""
    rows: list[TableRow] = []
    for line in lines:
        row = row_of(line)
        if row is not None:
            rows.append(row)
        elif rows:
            break
    return rows


def records(lines: Sequence[TextLine]) -> Iterator[TableRecord]:
    """The rows of every table that has a header.

    The surplus cells of a row that is too long are joined into its last column; a row that is too short is padded.
    """
    rows = [row_of(line) for line in lines]
    at = 0
    while at + 1 < len(rows):
        header, below = rows[at], rows[at + 1]
        if not header or not below or not below.is_delimiter:
            at += 1
            continue
        names = [cell.value.lower() for cell in header.cells]
        at += 2
        while at < len(rows) and (row := rows[at]) is not None:
            yield TableRecord(line=row.line.number, cells=_by_column(names, row))
            at += 1


def _by_column(names: Sequence[str], row: TableRow) -> dict[str, str]:
    values = [cell.raw.strip().replace("\\|", "|") for cell in row.cells]
    last = len(names) - 1
    padded = [*values[:last], " | ".join(values[last:]), *[""] * last]
    return dict(zip(names, padded, strict=False))


def plain_value(raw: str) -> str:
    """A cell's value without its backticks or bold markers."""
    text = raw.strip().replace("\\|", "|")
    spans = code_spans(text)
    if spans:
        return ", ".join(spans)
    bold = _BOLD.match(text)
    return bold[1] if bold else text


def plain_values(raw: str) -> tuple[str, ...]:
    """The values of a cell that may hold several."""
    text = raw.strip().replace("\\|", "|")
    parts = code_spans(text) or [plain_value(part) for part in _BETWEEN.split(text)]
    return tuple(part for part in parts if part)


def code_spans(text: str) -> list[str]:
    """The contents of the code spans, if the text consists of nothing else; otherwise empty."""
    spans: list[str] = []
    position = 0
    while span := _SPAN.match(text, position):
        inner = span[2]
        if inner.startswith(" ") and inner.endswith(" ") and inner.strip():
            inner = inner[1:-1]
        spans.append(inner)
        if span.end() == len(text):
            return spans
        gap = _BETWEEN.match(text, span.end())
        if gap is None:
            return []
        position = gap.end()
    return []


def code_cell(value: str) -> str:
    """A value as a code span, with as many backticks as it needs."""
    value = one_line(value)
    if not value:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", value)), default=0) + 1)
    space = " " if value[0] == "`" or value[-1] == "`" else ""
    return f"{ticks}{space}{value}{space}{ticks}".replace("|", "\\|")


def text_cell(value: str) -> str:
    """A value as plain text; as a code span only if the plain text would read back as another value."""
    plain = one_line(value).replace("|", "\\|")
    return plain if plain_value(plain) == one_line(value) else code_cell(value)


def one_line(value: str) -> str:
    return re.sub(r"\s*[\r\n]+\s*", " ", value).strip()
