"""Markup that every section of the page uses; all text is escaped."""

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.findings.model import UNKNOWN_PLACE, Finding, Location
from torchtriage.findings.report import Report
from torchtriage.reporters.summary import short_path
from torchtriage.text import printable

_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def text(value: object) -> str:
    """One line of text, for an element or a quoted attribute."""
    return html.escape(printable(str(value)))


def block(value: str) -> str:
    """Text of several lines, for a <pre>."""
    return "\n".join(text(line.expandtabs(4)) for line in value.split("\n"))


def attributes(**values: object) -> str:
    """` name="value"` for each value except None and False; True gives the bare name.

    `data_x` becomes data-x, and `class_` becomes class.
    """
    parts = []
    for name, value in values.items():
        if value is not None and value is not False:
            name = name.rstrip("_").replace("_", "-")
            parts.append(f" {name}" if value is True else f' {name}="{text(value)}"')
    return "".join(parts)


def items(values: Iterable[object]) -> str:
    return "".join(f"<li>{text(value)}</li>" for value in values)


def script_data(data: Any) -> str:
    """JSON for a <script> element; no text in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT)


def number(value: float | None, digits: int = 4) -> float | int | None:
    """A number with few digits, as a page may have 20,000 of them; None for NaN and infinity, which JSON lacks."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")
NOT_KNOWN = '<span class="quiet">not known</span>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The report of a page, and the links to its findings."""

    report: Report
    ids: Sequence[str]              # one per finding, in the order of the findings
    index: Mapping[str, int]        # from a fingerprint to the index of its finding

    def link(self, fingerprint: str, label: str) -> str:
        """A link to the finding, or only the label if the report does not contain it. The label is HTML."""
        index = self.index.get(fingerprint)
        return label if index is None else f'<a href="#{self.ids[index]}">{label}</a>'

    def finding(self, fingerprint: str) -> Finding | None:
        index = self.index.get(fingerprint)
        return None if index is None else self.report.findings[index]

    def path(self, location: Location) -> str:
        return short_path(str(location), self.report.run)

    def file(self, location: Location) -> str:
        return short_path(location.path, self.report.run)

    def place(self, location: Location) -> str:
        """`path:line in function`, as HTML; empty if the place is unknown."""
        if location == UNKNOWN_PLACE:
            return ""
        inside = ""
        if location.function and location.function != "<module>":
            inside = f" in <code>{text(location.function)}</code>"
        return f'<code class="path">{text(self.path(location))}</code>{inside}'


def scope_of(report: Report) -> Scope:
    ids: list[str] = []
    index: dict[str, int] = {}
    for number, finding in enumerate(report.findings):
        # A link by fingerprint is the same in every report. Duplicates and names that are not plain get a number.
        is_name = _PLAIN.fullmatch(finding.fingerprint) and finding.fingerprint not in index
        ids.append(f"f-{finding.fingerprint}" if is_name else f"f.{number}")
        index.setdefault(finding.fingerprint, number)
    return Scope(report=report, ids=ids, index=index)


def what_is_timed(run: Mapping[str, Any]) -> str:
    """The noun for the duration of a history: a trace or a log may contain only a part of the run."""
    origin = str(run.get("origin"))
    return origin if origin in ("trace", "log") else "run"


def section(name: str, title: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    heading = f'<h2 id="{name}-title">{title}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">\n{heading}\n{body}\n</section>'


def note(words: str) -> str:
    """A remark in a quiet colour, such as why there is nothing to show."""
    return f'<p class="quiet">{text(words)}</p>'


def table(name: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """A table that scrolls inside its own frame; cells are HTML, the columns in `numbers` are aligned right."""
    right = set(numbers)
    classes = [' class="n"' if i in right else "" for i in range(len(head))]
    titles = "".join(f'<th scope="col"{class_}>{title}</th>' for title, class_ in zip(head, classes, strict=True))
    lines = []
    for row in rows:
        cells = "".join(f"<td{class_}>{cell}</td>" for cell, class_ in zip(row, classes, strict=True))
        lines.append(f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(name)}"><table>\n'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )
