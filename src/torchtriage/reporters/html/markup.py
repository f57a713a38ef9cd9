"""Parts that every section of the page is made of; text of the program is escaped in all of them."""

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
    """` name="value"` for each that is not None or False; True gives the bare name, `data_x` is written data-x, `class_` class."""
    parts = []
    for name, value in values.items():
        if value is not None and value is not False:
            name = name.rstrip("_").replace("_", "-")
            parts.append(f" {name}" if value is True else f' {name}="{text(value)}"')
    return "".join(parts)


def items(values: Iterable[object]) -> str:
    return "".join(f"<li>{text(value)}</li>" for value in values)


def script_data(data: Any) -> str:
    """JSON that can stand in a <script> element; no text in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT)


def number(value: float | None, digits: int = 4) -> float | int | None:
    """A number short enough to be written 20,000 times; None for what JSON cannot say."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")
NOT_KNOWN = '<span class="quiet">not known</span>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    report: Report
    ids: Sequence[str]              # one a finding, in the order of the findings
    index: Mapping[str, int]        # fingerprint -> finding

    def link(self, fingerprint: str, label: str) -> str:
        """A link to the finding, or only the label if the report does not hold it. The label is HTML."""
        at = self.index.get(fingerprint)
        return label if at is None else f'<a href="#{self.ids[at]}">{label}</a>'

    def finding(self, fingerprint: str) -> Finding | None:
        at = self.index.get(fingerprint)
        return None if at is None else self.report.findings[at]

    def path(self, location: Location) -> str:
        return short_path(str(location), self.report.run)

    def file(self, location: Location) -> str:
        return short_path(location.path, self.report.run)

    def place(self, location: Location) -> str:
        """`path:line in function`, as HTML; empty if the place is not known."""
        if location == UNKNOWN_PLACE:
            return ""
        inside = f" in <code>{text(location.function)}</code>" if location.function and location.function != "<module>" else ""
        return f'<code class="path">{text(self.path(location))}</code>{inside}'


def scope_of(report: Report) -> Scope:
    ids: list[str] = []
    index: dict[str, int] = {}
    for number, finding in enumerate(report.findings):
        # A fingerprint keeps its link from report to report; what is no plain name, or comes twice, is numbered.
        is_name = _PLAIN.fullmatch(finding.fingerprint) and finding.fingerprint not in index
        ids.append(f"f-{finding.fingerprint}" if is_name else f"f.{number}")
        index.setdefault(finding.fingerprint, number)
    return Scope(report=report, ids=ids, index=index)


def what_is_timed(run: Mapping[str, Any]) -> str:
    """Whose length the seconds of a history are: a trace or a log may hold only a part of the run."""
    origin = str(run.get("origin"))
    return origin if origin in ("trace", "log") else "run"


def section(name: str, title: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    return f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n{body}\n</section>'


def note(words: str) -> str:
    """One honest sentence where there is nothing to show."""
    return f'<p class="quiet">{text(words)}</p>'


def table(name: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """A table that scrolls inside its own frame; cells are HTML, the columns in `numbers` are set flush right."""
    right = set(numbers)
    columns = [' class="n"' if i in right else "" for i in range(len(head))]
    titles = "".join(f'<th scope="col"{c}>{h}</th>' for h, c in zip(head, columns, strict=True))
    body = "\n".join("<tr>" + "".join(f"<td{c}>{cell}</td>" for cell, c in zip(row, columns, strict=True)) + "</tr>" for row in rows)
    return (f'<div class="scroll" role="region" tabindex="0"{_named(name)}><table>\n<thead><tr>{titles}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>")


def _named(name: str) -> str:
    return f' aria-label="{text(name)}"'
