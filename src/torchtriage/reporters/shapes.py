"""A shape study at a terminal: the advice, the table, then the evidence."""

from collections.abc import Iterator, Sequence

from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.reporters import shape_text
from torchtriage.reporters.lines import Line, field, printed, wrapped
from torchtriage.reporters.shape_text import PolicyRow

MAX_SIZES = 4           # varying sizes that are listed; all of them with -v
MAX_OVERRIDES = 3


def render_study(study: ShapeStudy, width: int = 100, colour: bool = False) -> str:
    """The complete study as text."""
    return printed(study_lines(study, width=max(60, width), verbose=True), width=max(60, width), colour=colour)


def study_lines(study: ShapeStudy, *, width: int, verbose: bool = False) -> list[Line]:
    return [*_advice(study, width), ("", None), *_table(study, width), *_evidence(study, width, verbose)]


def _advice(study: ShapeStudy, width: int) -> Iterator[Line]:
    advice = study.advice
    yield f"SHAPES  {shape_text.verdict(study)}", "bold green" if advice.policy else "bold yellow"
    if why := shape_text.reason(study):
        yield from field("why", why, width)
    for number, line in enumerate(advice.setting):
        yield f"  {'' if number else 'set':<6}{line}", "green"      # to be pasted, so never wrapped
    if needs := shape_text.needs(study):
        yield from field("needs", needs, width)
    functions = shape_text.functions(study)
    if len(functions) > 1:
        for function, policy in functions:
            yield from field("each", f"{function}: {policy}", width)


def _table(study: ShapeStudy, width: int) -> Iterator[Line]:
    titles, cells = _fitting(study, width)
    gap = "  " if _width(titles + cells) <= width else " "
    widths = [max(map(len, column)) for column in zip(*titles, *cells, strict=True)]
    room = width - len("> ") - sum(len(gap) + w for w in widths[1:])
    widths[0] = max(len("policy"), min(widths[0], room))
    for title in titles if cells else ():
        yield _aligned("  ", title, widths, gap), "dim"
    for row in shape_text.rows(study):
        remarks = row.remarks
        if row.is_bare:
            yield from ((line, "yellow") for line in wrapped(f"{row.policy} {remarks[0]}", width, "  ", "  "))
            remarks = remarks[1:]
        else:
            yield from _figures(row, cells.pop(0), widths, gap)
        for remark in remarks:
            yield from ((line, "yellow") for line in wrapped(remark, width, "    "))
    if how := shape_text.how_measured(study):
        yield from ((line, "dim") for line in wrapped(how, width, "  "))
        yield "", None


def _figures(row: PolicyRow, cells: Sequence[str], widths: Sequence[int], gap: str) -> Iterator[Line]:
    """A row; a name that is too long for its column gets a separate line."""
    mark, style = ("> ", "bold green") if row.is_advised else ("  ", None)
    name, *numbers = cells
    if len(name) > widths[0]:
        yield f"{mark}{name}", style
        mark, name = "  ", ""
    yield _aligned(mark, [name, *numbers], widths, gap), style


def _fitting(study: ShapeStudy, width: int) -> tuple[list[list[str]], list[list[str]]]:
    """(lines of titles, rows of cells).

    If the full table is too wide, an interval becomes a percentage, compiles share a column with their time, and long
    titles take two lines.
    """
    title, cells = [*shape_text.headings(study)], _cells(shape_text.rows(study))
    if _width([title, *cells]) <= width:
        return [title], cells
    title[1:3] = ["compiles in"]
    cells = []
    for name, compiles, compiling, *others in _cells(shape_text.rows(study, brief=True)):
        timed = compiles if compiling == shape_text.NOTHING else f"{compiles} in {compiling}"
        cells.append([name, timed, *others])
    above, below = [], []
    for heading, *column in zip(title, *cells, strict=True):
        is_long = len(heading) > max(map(len, column), default=0)
        first, _, last = heading.rpartition(" ") if is_long else ("", "", heading)
        above.append(first)
        below.append(last)
    return [above, below], cells


def _cells(rows: Sequence[PolicyRow]) -> list[list[str]]:
    return [
        [r.policy, r.compiles, r.compiling, r.first_call, r.steady, r.memory, r.total] for r in rows if not r.is_bare
    ]


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Of a table with a mark before it and two spaces between its columns."""
    return sum(2 + max(map(len, column)) for column in zip(*lines, strict=True))


def _aligned(mark: str, cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    name, *numbers = cells
    aligned = "".join(f"{gap}{cell:>{w}}" for cell, w in zip(numbers, widths[1:], strict=True))
    return f"{mark}{name:<{widths[0]}}{aligned}".rstrip()


def _evidence(study: ShapeStudy, width: int, verbose: bool) -> Iterator[Line]:
    """The facts behind the advice, and the cost of measuring them."""
    for line in study.crossovers:
        yield from field("cross", shape_text.crossover(study, line), width)
    for b in study.branches:
        yield from field("tree", shape_text.branch(study, b), width)
    sizes = study.sizes if verbose else study.sizes[:MAX_SIZES]
    for s in sizes:
        yield from field("vary", f"{s.function}: {shape_text.size(s)}", width)
    if len(sizes) < len(study.sizes):
        yield from field("vary", f"{len(study.sizes) - len(sizes)} more (-v)", width)
    for policy, calls in shape_text.overrides(study):
        listed = calls if verbose else calls[:MAX_OVERRIDES]
        more = f"; {len(calls) - len(listed)} more (-v)" if len(listed) < len(calls) else ""
        yield from field("over", f"{policy} overrode {'; '.join(listed)}{more}", width)
    for note in study.notes:
        yield from field("note", note, width)
    yield from field("spent", shape_text.spent(study), width)
