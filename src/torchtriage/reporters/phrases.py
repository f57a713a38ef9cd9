"""The phrases that several reporters share: places, costs, counts."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from torchtriage.findings.model import UNKNOWN_PLACE, Cost, CostKind, Finding, Severity
from torchtriage.findings.report import Report

SHORT_NOTE = 40     # a longer note on the cost gets a line of its own
# Control characters, line separators, marks that turn the direction of text, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/")
_STDLIB = re.compile(r"(?:^|/)lib/python3\.\d+/")


def literal(text: str) -> str:
    """What a terminal would act on, written out: names and messages come from the program and its libraries."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def short_path(path: str, run: Mapping[str, Any]) -> str:
    """Relative to the working folder of the run, or below site-packages."""
    cwd = str(run.get("cwd") or "").rstrip(os.sep)
    if cwd and path.startswith(cwd + os.sep):
        return path[len(cwd) + 1:]
    return path.rsplit("site-packages/", 1)[-1]


def project_path(path: str, run: Mapping[str, Any]) -> str | None:
    """Relative to the working folder of the run, with forward slashes; None for what is not a file of the project."""
    path, cwd = path.replace("\\", "/"), str(run.get("cwd") or "").replace("\\", "/")
    if cwd and path.startswith(cwd.rstrip("/") + "/"):
        path = path[len(cwd.rstrip("/")) + 1:]
    is_elsewhere = path.startswith(("/", "<", "../")) or re.match(r"[A-Za-z]:/", path) or INSTALLED.search(path) or _STDLIB.search(path)
    return None if is_elsewhere or path in ("", UNKNOWN_PLACE.path) else path


def level_of(severity: Severity) -> str:
    """The three levels of the tools that annotate source."""
    return "error" if severity <= Severity.P1 else "warning" if severity is Severity.P2 else "note"


def counted(number: float | None, word: str) -> str:
    return f"{number or 0:,} {word}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """Two digits that mean something: 61 s, 1.2 s, 74 ms, 12 us."""
    value, unit = (seconds, "s") if seconds >= 1 else (1e3 * seconds, "ms") if seconds >= 1e-3 else (1e6 * seconds, "us")
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def cost_text(cost: Cost) -> str:
    parts = []
    if cost.seconds is not None:
        parts.append(duration(cost.seconds))
    if cost.ms_per_step is not None:
        parts.append(f"{duration(cost.ms_per_step / 1000.0)} a step")
    if cost.share is not None:
        parts.append(f"{cost.share:.0%} of steady state")
    if not parts or cost.kind is CostKind.NOT_MEASURED:
        return ""
    note = f", {cost.note}" if cost.note and len(cost.note) <= SHORT_NOTE else ""
    return f"{', '.join(parts)} ({cost.kind}{note})"


def by_severity(findings: Iterable[Finding]) -> str:
    """`2 P1, 5 P3`."""
    return ", ".join(f"{number} {name}" for name, number in Counter(f.severity.name for f in findings).items())


def totals_line(report: Report) -> str:
    t = report.totals
    parts = [
        counted(len(report.findings), "finding"), counted(t.get("compiles"), "compile"), counted(t.get("recompiles"), "recompile"),
        f"{counted(t.get('graph_breaks'), 'graph break')} at {counted(t.get('distinct_graph_breaks'), 'place')}",
    ]
    if t.get("frames_at_limit"):
        parts.append("1 frame at its limit" if t["frames_at_limit"] == 1 else f"{t['frames_at_limit']} frames at their limit")
    if t.get("eager_calls"):
        parts.append(counted(t["eager_calls"], "eager call"))
    seconds = t.get("compile_seconds")
    if seconds is not None:
        parts.append(f"{duration(seconds)} compiling")
    if t.get("steps"):
        parts.append(counted(t["steps"], "step"))
    return ", ".join(parts)


def watched_line(report: Report) -> str:
    """What "no findings" rests on."""
    return f"watched: {', '.join(report.watched) or 'nothing: torch was not imported, or no process joined'}"


def not_shown(report: Report) -> list[str]:
    """What a baseline, the flags and comments in the source took out, and the comments that took out nothing."""
    lines = []
    if report.num_known:
        lines.append(f"{counted(report.num_known, 'known finding')} accepted by the baseline")
    if report.num_hidden:
        lines.append(f"{report.num_hidden} hidden by --select or --ignore")
    if report.num_suppressed:
        lines.append(f"{report.num_suppressed} suppressed by a comment in the source")
    return lines + [f"unused suppression: {short_path(place, report.run)}" for place in report.unused_suppressions]
