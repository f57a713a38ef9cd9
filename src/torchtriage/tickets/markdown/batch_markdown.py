"""What a report is made of: sections of any level, tables by the names of their columns, fenced code; nothing here raises."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from torchtriage.tickets.markdown import tables as cells
from torchtriage.tickets.markdown.lines import CODE, TEXT, Line, heading, scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and all that stands below it, up to the next heading that ends it; the part before any heading has no title."""

    title: str
    level: int
    line: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    line: int
    cells: Mapping[str, str]    # by the column's name, in small letters

    def cell(self, *names: str) -> str:
        """The first of these columns that the table has; empty if it has none."""
        return next((self.cells[name] for name in names if name in self.cells), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    language: str
    lines: tuple[str, ...]


def sections(lines: Sequence[Line], level: int) -> list[Section]:
    """Cut at headings of this level or above; deeper ones stay in the body, to be cut in their turn."""
    found: list[Section] = []
    title, depth, start = "", 0, 0
    body: list[Line] = []
    for line in lines:
        cut = heading(line.text) if line.kind == TEXT else None
        if cut and cut[0] <= level:
            found.append(Section(title=title, level=depth, line=start, lines=tuple(body)))
            (depth, title), start, body = cut, line.number, []
        else:
            body.append(line)
    found.append(Section(title=title, level=depth, line=start, lines=tuple(body)))
    return [section for section in found if section.level or any(not line.is_blank for line in section.lines)]


def tables(lines: Sequence[Line]) -> Iterator[tuple[Row, ...]]:
    """Every table as its rows; a row that is too long is joined into its last column, one that is too short is filled."""
    rows = [cells.row_of(line) for line in lines]
    at = 0
    while at + 1 < len(rows):
        header, below = rows[at], rows[at + 1]
        if not header or not below or not below.is_delimiter:
            at += 1
            continue
        names = [cells.undressed(cell.raw).lower() for cell in header.cells]
        end = next((i for i in range(at + 2, len(rows)) if rows[i] is None), len(rows))
        yield tuple(Row(line=row.line.number, cells=_by_column(names, row)) for row in rows[at + 2: end] if row)
        at = end


def _by_column(names: Sequence[str], row: cells.Row) -> dict[str, str]:
    values = [cell.raw.strip().replace("\\|", "|") for cell in row.cells]
    last = len(names) - 1
    fitted = [*values[:last], " | ".join(values[last:]), *[""] * last]
    return dict(zip(names, fitted, strict=False))


def fences(text: str) -> Iterator[Fence]:
    """The fenced pieces of a text, without their fences; one that nothing closes is not code."""
    language, inside = "", list[str]()
    lines = scan(text)[0]
    for line, below in zip_longest(lines, lines[1:]):
        if line.kind != CODE:
            continue
        if line.opens:
            language, inside = line.text.strip().strip("`~").split(" ")[0].lower(), []
        elif below is not None and below.kind == CODE and not below.opens:
            inside.append(line.text)
        else:
            yield Fence(language=language, lines=tuple(inside))
