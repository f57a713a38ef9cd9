"""Findings as GitHub workflow commands: each becomes an annotation at its line of the pull request."""

from collections import Counter
from collections.abc import Sequence

from torchtriage.findings.model import UNKNOWN_PLACE, Finding
from torchtriage.findings.report import Report
from torchtriage.reporters.summary import (
    by_severity,
    cost_text,
    level_of,
    not_shown,
    project_path,
    short_path,
    tap_text,
    totals_line,
    watched_line,
)
from torchtriage.text import counted, printable

MAX_OF_A_KIND = 10      # GitHub shows the first ten errors, warnings and notices of a step, and drops the others
MAX_TITLE = 255


def render(report: Report) -> str:
    """The worst first, as many as GitHub shows, then a notice with the totals and what is left out."""
    lines, left_out = [], []
    shown = Counter({"notice": 1})      # the closing one
    for f in report.findings:
        kind = level_of(f.severity).replace("note", "notice")
        shown[kind] += 1
        if shown[kind] <= MAX_OF_A_KIND:
            lines.append(_annotation(kind, f, report))
        else:
            left_out.append(f)
    return "\n".join([*lines, _command("notice", {"title": "torchtriage"}, _closing(report, left_out))]) + "\n"


def _annotation(kind: str, f: Finding, report: Report) -> str:
    at = f.location
    path = project_path(at.path, report.run)
    properties = {} if path is None else {"file": path, "line": at.line, "col": at.column if at.line else None}
    cost = cost_text(f.cost)
    message = [f.cause, f"cost: {cost}" if cost else "", f"fix: {f.fix.text}", f"more: torchtriage explain {f.code}"]
    if path is None and at != UNKNOWN_PLACE:
        message.insert(0, f"at {short_path(str(at), report.run)}")      # outside the repository there is no line to annotate
    return _command(kind, {**properties, "title": f"{f.code} {f.severity.name} {f.title}"[:MAX_TITLE]}, message)


def _closing(report: Report, left_out: Sequence[Finding]) -> list[str]:
    lines = [totals_line(report)]
    if left_out:
        more = counted(len(left_out), "finding")
        lines.append(f"{more} more than GitHub shows ({by_severity(left_out)}); all with: torchtriage report RECORDING -v")
    if not report.findings:
        lines.append(watched_line(report))
        lines += [f"not seen: {tap_text(tap)}" for tap in report.not_seen]
    return lines + not_shown(report)


def _command(kind: str, properties: dict[str, str | int | None], message: Sequence[str]) -> str:
    """`::error file=a.py,line=3::text`; what would end a property or the line is escaped as GitHub's runner reads it back."""
    parts = [f"{name}={_escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}" for name, value in properties.items() if value]
    return f"::{kind} {','.join(parts)}::{'%0A'.join(_escaped(line) for line in message if line)}"


def _escaped(text: str) -> str:
    return printable(text).replace("%", "%25")
