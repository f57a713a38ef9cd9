"""What is wrong with the form of a ticket: broken rows, missing fields and conflict markers."""

import re
from collections.abc import Iterator

from torchtriage.tickets.files.reading import LOCATION, METADATA, Reading, key_of, rows
from torchtriage.tickets.markdown.lines import title_text

Trouble = tuple[int | None, str, str]   # line number, kind, message

CONFLICT = "merge-conflict"
NEEDED = ("id", "severity", "status")
_ONCE = frozenset({"title", "metadata", "location", "summary", "wrong", "impact", "fix", "related"})
_CONFLICT_START = re.compile(r"<{7}(?: |$)")
_CONFLICT_END = re.compile(r">{7}(?: |$)")


def troubles(reading: Reading) -> Iterator[Trouble]:
    yield from _conflicts(reading)
    for line in reading.unclosed:
        yield line.number, "unclosed-block", f"nothing closes what begins here: {line.text.strip()!r}; it was read as text"
    yield from _missing(reading)
    yield from _broken_rows(reading)
    seen: set[str] = set()
    for section in reading.sections:
        if section.name in _ONCE and section.name in seen and section.heading:
            yield section.heading.number, "repeated-section", f"a second section {section.title!r}; only the first was read"
        seen.add(section.name)


def _conflicts(reading: Reading) -> Iterator[Trouble]:
    starts = [line for line in reading.lines if _CONFLICT_START.match(line.text)]
    if starts and any(_CONFLICT_END.match(line.text) for line in reading.lines):
        for line in starts:
            yield line.number, CONFLICT, "a merge conflict is not resolved here"


def _missing(reading: Reading) -> Iterator[Trouble]:
    title = reading.first("title")
    if title is None or not title_text(title.title):
        yield None, "missing-title", "no heading '# Finding Ticket: ...'"
    for name in NEEDED:
        if reading.entry(name) is None:
            yield None, f"missing-{name}", f"no row {METADATA[name][0]!r} in a metadata table"


def _broken_rows(reading: Reading) -> Iterator[Trouble]:
    known = {"metadata": METADATA, "location": LOCATION}
    for section in reading.of(*known):
        names = {key_of(alias): keys[0] for keys in known[section.name].values() for alias in keys}
        seen: set[str] = set()
        for entry in (e for e in reading.entries if e.section is section and e.is_row):
            name = names.get(entry.key)
            if name and entry.num_cells != 2:
                count = f"{entry.num_cells} cell{'s' if entry.num_cells != 1 else ''}"
                yield entry.line.number, "broken-table", f"the row of {name!r} has {count}, not 2; a | in a value is written as \\|"
            elif name and name in seen:
                yield entry.line.number, "broken-table", f"a second row of {name!r}; only the first was read"
            seen.add(name or "")
        table = rows(section.lines)
        if table and not any(row.is_delimiter for row in table):
            yield table[0].line.number, "broken-table", "this table has no line |---|---| below its head"
