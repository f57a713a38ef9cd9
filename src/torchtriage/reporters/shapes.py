"""A shape study for people at a terminal: what to do, the table, then what it rests on."""

from collections.abc import Iterator, Sequence

from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.reporters import shape_words as words
from torchtriage.reporters.lines import Line, field, printed, wrapped
from torchtriage.reporters.shape_words import Row

MAX_SIZES = 4           # what varies; more with -v
MAX_OVERRIDES = 3


def render_study(study: ShapeStudy, width: int = 100, colour: bool = False) -> str:
    """The whole study as text."""
    return printed(study_lines(study, width=max(60, width), verbose=True), width=max(60, width), colour=colour)


def study_lines(study: ShapeStudy, *, width: int, verbose: bool = False) -> list[Line]:
    return [*_advice(study, width), ("", None), *_table(study, width), *_behind(study, width, verbose)]


def _advice(study: ShapeStudy, width: int) -> Iterator[Line]:
    advice = study.advice
    yield f"SHAPES  {words.verdict(study)}", "bold green" if advice.policy else "bold yellow"
    if why := words.reason(study):
        yield from field("why", why, width)
    for number, line in enumerate(advice.setting):
        yield f"  {'' if number else 'set':<6}{line}", "green"      # to be pasted, so never wrapped
    if advice.needs:
        yield from field("needs", advice.needs, width)
    for function, policy in study.by_function.items() if len(study.by_function) > 1 else ():
        yield from field("each", f"{function}: {policy}", width)


def _table(study: ShapeStudy, width: int) -> Iterator[Line]:
    titles, cells = _fitting(study, width)
    gap = "  " if _width(titles + cells) <= width else " "
    widths = [max(map(len, column)) for column in zip(*titles, *cells, strict=True)]
    widths[0] = max(len("policy"), min(widths[0], width - len("> ") - sum(len(gap) + w for w in widths[1:])))
    for title in titles if cells else ():
        yield _aligned("  ", title, widths, gap), "dim"
    for row in words.rows(study):
        if row.is_bare:
            yield from ((line, "yellow") for line in wrapped(f"{row.policy} {row.remarks[0]}", width, "  ", "  "))
        else:
            yield from _figures(row, cells.pop(0), widths, gap)
        for remark in row.remarks[row.is_bare:]:
            yield from ((line, "yellow") for line in wrapped(remark, width, "    "))
    if how := words.how_measured(study):
        yield from ((line, "dim") for line in wrapped(how, width, "  "))
        yield "", None


def _figures(row: Row, cells: Sequence[str], widths: Sequence[int], gap: str) -> Iterator[Line]:
    """A row; a name that has no room gets a line of its own."""
    mark, style = ("> ", "bold green") if row.is_advised else ("  ", None)
    name, *numbers = cells
    if len(name) > widths[0]:
        yield f"{mark}{name}", style
        mark, name = "  ", ""
    yield _aligned(mark, [name, *numbers], widths, gap), style


def _fitting(study: ShapeStudy, width: int) -> tuple[list[list[str]], list[list[str]]]:
    """(lines of titles, rows of cells).

    Where the full table has no room, an interval is a percentage, compiles share a column with their time, and long titles
    take two lines.
    """
    title, cells = [*words.headings(study)], _cells(words.rows(study))
    if _width([title, *cells]) <= width:
        return [title], cells
    title[1:3] = ["compiles in"]
    cells = [[c[0], f"{c[1]} in {c[2]}" if c[2] != words.NOTHING else c[1], *c[3:]] for c in _cells(words.rows(study, brief=True))]
    two_lines = [
        heading.rpartition(" ") if len(heading) > max(map(len, column), default=0) else ("", "", heading)
        for heading, *column in zip(title, *cells, strict=True)
    ]
    return [[above for above, _, _ in two_lines], [below for _, _, below in two_lines]], cells


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    return [[r.policy, r.compiles, r.compiling, r.first_call, r.steady, r.memory, r.total] for r in rows if not r.is_bare]


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Of a table with a mark before it and two spaces between its columns."""
    return sum(2 + max(map(len, column)) for column in zip(*lines, strict=True))


def _aligned(mark: str, cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    name, *numbers = cells
    aligned = "".join(f"{gap}{cell:>{w}}" for cell, w in zip(numbers, widths[1:], strict=True))
    return f"{mark}{name:<{widths[0]}}{aligned}".rstrip()


def _behind(study: ShapeStudy, width: int, verbose: bool) -> Iterator[Line]:
    """What the advice rests on, and what was done to measure it."""
    for line in study.crossovers:
        yield from field("cross", words.crossover(study, line), width)
    for b in study.branches:
        yield from field("tree", words.branch(b), width)
    shown = study.sizes if verbose else study.sizes[:MAX_SIZES]
    for s in shown:
        yield from field("vary", f"{s.function}: {words.size(s)}", width)
    if len(shown) < len(study.sizes):
        yield from field("vary", f"{len(study.sizes) - len(shown)} more (-v)", width)
    for policy, calls in words.overrides(study):
        listed = calls if verbose else calls[:MAX_OVERRIDES]
        more = f"; {len(calls) - len(listed)} more (-v)" if len(listed) < len(calls) else ""
        yield from field("over", f"{policy} overrode {'; '.join(listed)}{more}", width)
    for note in study.notes:
        yield from field("note", note, width)
    yield from field("spent", words.spent(study), width)
