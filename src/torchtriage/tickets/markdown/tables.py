"""The rows of a Markdown table and the values in their cells, with their places in the text."""

import re
from dataclasses import dataclass

from torchtriage.tickets.markdown.lines import TEXT, Line

_PIPE = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r"\s*:?-+:?\s*$")
_BOLD = re.compile(r"\*\*(?!\s)([^*]+)(?<!\s)\*\*$")
_SPAN = re.compile(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)")
_BETWEEN = re.compile(r"\s*(?:,|;|<br ?/?>)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`start` and `end` enclose all that stands between the pipes."""

    start: int
    end: int
    raw: str

    @property
    def value(self) -> str:
        return undressed(self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    line: Line
    cells: tuple[Cell, ...]

    @property
    def is_delimiter(self) -> bool:
        return all(_DELIMITER.match(cell.raw) for cell in self.cells)


def row_of(line: Line) -> Row | None:
    """The row that a line is; None for a line without a pipe, or in code."""
    if line.kind != TEXT:
        return None
    ends = [match.start() for match in _PIPE.finditer(line.text)]
    if not ends:
        return None
    starts = [0] + [end + 1 for end in ends]
    ends.append(len(line.text))
    cells = [
        Cell(start=line.start + start, end=line.start + end, raw=line.text[start:end]) for start, end in zip(starts, ends, strict=True)
    ]
    if not cells[0].raw.strip():
        cells = cells[1:]
    if cells and not cells[-1].raw.strip() and line.text.rstrip().endswith("|"):
        cells = cells[:-1]
    return Row(line=line, cells=tuple(cells))


def undressed(raw: str) -> str:
    """A cell's value without its backticks or its bold stars."""
    text = raw.strip().replace("\\|", "|")
    spans = code_spans(text)
    if spans:
        return ", ".join(spans)
    bold = _BOLD.match(text)
    return bold[1] if bold else text


def listed(raw: str) -> tuple[str, ...]:
    """The values of a cell that may hold several."""
    text = raw.strip().replace("\\|", "|")
    parts = code_spans(text) or [undressed(part) for part in _BETWEEN.split(text)]
    return tuple(part for part in parts if part)


def code_spans(text: str) -> list[str]:
    """The code spans of a text that consists of nothing else; empty if it does not."""
    found: list[str] = []
    position = 0
    while span := _SPAN.match(text, position):
        inner = span[2]
        if inner.startswith(" ") and inner.endswith(" ") and inner.strip():
            inner = inner[1:-1]
        found.append(inner)
        if span.end() == len(text):
            return found
        gap = _BETWEEN.match(text, span.end())
        if gap is None:
            return []
        position = gap.end()
    return []


def dressed_as_code(value: str) -> str:
    """A value in as many backticks as it needs."""
    value = one_line(value)
    if not value:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", value)), default=0) + 1)
    space = " " if value[0] == "`" or value[-1] == "`" else ""
    return f"{ticks}{space}{value}{space}{ticks}".replace("|", "\\|")


def dressed_plain(value: str) -> str:
    """A value as it is, in backticks only if it would read back as something else."""
    plain = one_line(value).replace("|", "\\|")
    return plain if undressed(plain) == one_line(value) else dressed_as_code(value)


def one_line(value: str) -> str:
    return re.sub(r"\s*[\r\n]+\s*", " ", value).strip()
