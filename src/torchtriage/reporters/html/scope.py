"""What every section of the page needs: the report, where its findings stand in the page, and how a place is written."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.findings.model import UNKNOWN_PLACE, Finding, Location
from torchtriage.findings.report import Report
from torchtriage.reporters.html.escape import text
from torchtriage.reporters.phrases import short_path

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
