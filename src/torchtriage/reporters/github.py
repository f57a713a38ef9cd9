"""Findings as GitHub workflow commands, which become annotations at the lines of a pull request."""

from collections import Counter
from collections.abc import Mapping, Sequence

from torchtriage.findings.model import UNKNOWN_PLACE, Finding
from torchtriage.findings.report import Report
from torchtriage.reporters.summary import (
    by_severity,
    cost_text,
    level_of,
    not_seen,
    not_shown,
    project_path,
    short_path,
    totals_line,
    watched_line,
)
from torchtriage.text import counted, printable, shortened

MAX_PER_LEVEL = 10      # GitHub shows the first ten errors, warnings and notices of a step, and drops the others
MAX_TITLE = 255


def render(report: Report) -> str:
    """The worst findings, as many as GitHub shows, then a notice with the totals and the number of other findings."""
    lines, left_out = [], []
    counts = Counter({"notice": 1})     # the closing notice
    for f in report.findings:
        level = level_of(f.severity).replace("note", "notice")
        counts[level] += 1
        if counts[level] <= MAX_PER_LEVEL:
            lines.append(_annotation(level, f, report))
        else:
            left_out.append(f)
    return "\n".join([*lines, _command("notice", {"title": "torchtriage"}, _closing(report, left_out))]) + "\n"


def _annotation(level: str, f: Finding, report: Report) -> str:
    place = f.location
    path = project_path(place.path, report.run)
    properties: dict[str, str | int | None] = {}
    if path is not None:
        properties = {"file": path, "line": place.line, "col": place.column if place.line else None}
    properties["title"] = shortened(f"{f.code} {f.severity.name} {f.title}", MAX_TITLE)
    cost = cost_text(f.cost)
    message = [f.cause, f"cost: {cost}" if cost else "", f"fix: {f.fix.text}", f"more: torchtriage explain {f.code}"]
    if path is None and place != UNKNOWN_PLACE:
        # A place outside the repository has no line to annotate.
        message.insert(0, f"at {short_path(str(place), report.run)}")
    return _command(level, properties, message)


def _closing(report: Report, left_out: Sequence[Finding]) -> list[str]:
    lines = [totals_line(report)]
    if left_out:
        more = counted(len(left_out), "finding")
        lines.append(
            f"{more} more than GitHub shows ({by_severity(left_out)}); see all with: torchtriage report RECORDING -v"
        )
    if not report.findings:
        lines.append(watched_line(report))
        lines += [f"not seen: {text}" for text in not_seen(report)]
    return lines + not_shown(report)


def _command(level: str, properties: Mapping[str, str | int | None], message: Sequence[str]) -> str:
    """`::error file=a.py,line=3::text`, escaped in the way that GitHub's runner decodes."""
    parts = []
    for name, value in properties.items():
        if value:
            parts.append(f"{name}={_escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}")
    return f"::{level} {','.join(parts)}::{'%0A'.join(_escaped(line) for line in message if line)}"


def _escaped(text: str) -> str:
    return printable(text).replace("%", "%25")
