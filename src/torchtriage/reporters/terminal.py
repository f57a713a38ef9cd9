"""Findings for people at a terminal: at most three screens, worst first, then the exact next command."""

import io
import os
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from torchtriage.findings.model import UNKNOWN_PLACE, Cost, CostKind, Finding, Location, OwnerKind
from torchtriage.findings.report import Report

SCREENS = 3
LINES_OF_A_SCREEN = 40
SHORT_NOTE = 40     # a longer note on the cost gets a line of its own
_COLOURS = {"P0": "bold white on red", "P1": "bold red", "P2": "yellow", "P3": "cyan", "P4": "dim"}
_INDENT = " " * 8
# Control characters, line separators, marks that turn the direction of text, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Line = tuple[str, str | None]   # text, style


def render(report: Report, *, width: int = 100, colour: bool = False, verbose: bool = False, next_command: str = "") -> str:
    """The whole report as text, with ANSI colours if asked for."""
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    # Every choice is made here: rich would look at the environment, and in a notebook display the text instead of writing it.
    console = Console(
        file=out, width=max(60, width), force_terminal=colour, color_system="standard" if colour else None, no_color=not colour,
        force_jupyter=False, soft_wrap=True,
    )
    budget = SCREENS * LINES_OF_A_SCREEN
    shown = 0
    explained: set[str] = set()     # recompiles that a limit shown above already tells
    for finding in report.findings:
        if finding.fingerprint in explained and not verbose:
            block: list[Line] = [(_head(finding), _COLOURS[finding.severity.name]), ("  see TT301 above, which it led to", None)]
        else:
            block = _finding(finding, report.run, max(60, width), verbose)
        if finding.code == "TT301":
            explained |= set(finding.related)
        budget -= len(block) + 1
        if budget < 0 and shown and not verbose:
            break
        for text, style in block:
            console.print(Text(literal(text), style=style or ""))
        console.print()
        shown += 1
    for line in _closing(report, shown, next_command):
        console.print(Text(literal(line)))
    return out.getvalue()


def literal(text: str) -> str:
    """What a terminal would act on, written out: names and messages come from the program and its libraries."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _finding(f: Finding, run: Mapping[str, Any], width: int, verbose: bool) -> list[Line]:
    lines: list[Line] = [(_head(f), _COLOURS[f.severity.name])]
    if f.location != UNKNOWN_PLACE:
        lines.append((f"  --> {_where(f.location, run)}{_owner(f, run)}", None))
    code = _source_line(f)
    if code:
        lines.append((f"      | {code}", "dim"))
    lines += _field("why", f.cause + (f" [{f.upstream}]" if f.upstream else ""), width)
    lines += _field("fix", f.fix.text, width)
    if len(f.cost.note) > SHORT_NOTE:
        lines += _field("cost", f.cost.note, width)
    for folded in f.evidence.folded[: None if verbose else 3]:
        lines += _field("with", folded, width)
    if len(f.evidence.folded) > 3 and not verbose:
        lines += _field("with", f"{len(f.evidence.folded) - 3} more (-v)", width)
    if verbose:
        for note in f.evidence.notes:
            lines += _field("note", note, width)
        lines += _field("id", f.fingerprint, width)
    lines += _field("more", f"torchtriage explain {f.code}", width)
    return lines


def _head(f: Finding) -> str:
    cost = cost_text(f.cost)
    return f"{f.code} {f.severity.name}  {f.title}" + (f"   {cost}" if cost else "")


def _field(name: str, text: str, width: int) -> list[Line]:
    wrapped = textwrap.wrap(" ".join(text.split()), width - len(_INDENT), break_long_words=False, break_on_hyphens=False) or [""]
    lines: list[Line] = [(f"  {name:<6}{wrapped[0]}", None)]
    return lines + [(f"{_INDENT}{line}", None) for line in wrapped[1:]]


def _where(place: Location, run: Mapping[str, Any]) -> str:
    inside = f"  in {place.function}" if place.function and place.function != "<module>" else ""
    return f"{short_path(str(place), run)}{inside}"


def _owner(f: Finding, run: Mapping[str, Any]) -> str:
    parts = []
    if f.owner.kind is not OwnerKind.YOU and f.owner.kind is not OwnerKind.UNKNOWN:
        parts.append(f"owner: {f.owner}")
    if f.raised_at is not None:
        parts.append(f"raised at {short_path(str(f.raised_at), run)}")
    if f.ranks:
        parts.append(f"rank{'s' if len(f.ranks) > 1 else ''} {', '.join(map(str, f.ranks))}")
    return f"   ({'; '.join(parts)})" if parts else ""


def short_path(path: str, run: Mapping[str, Any]) -> str:
    """Relative to the working folder of the run, or below site-packages."""
    cwd = str(run.get("cwd") or "").rstrip(os.sep)
    if cwd and path.startswith(cwd + os.sep):
        return path[len(cwd) + 1:]
    return path.rsplit("site-packages/", 1)[-1]


def _source_line(f: Finding) -> str:
    marked = [line for line in f.evidence.source if line.startswith(">")]
    return marked[0][1:].strip() if marked else ""


def counted(number: float | None, word: str) -> str:
    return f"{number or 0} {word}" if number == 1 else f"{number or 0} {word}s"


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


def _closing(report: Report, shown: int, next_command: str) -> list[str]:
    lines = []
    left = len(report.findings) - shown
    if left:
        counts = ", ".join(f"{n} {s}" for s, n in _by_severity(report.findings[shown:]).items())
        lines.append(f"{left} more ({counts}); see them all with -v")
    lines.append(_totals_line(report))
    if not report.findings:
        lines.append("no findings")
        lines.append(f"watched: {', '.join(report.watched) or 'nothing: torch was not imported, or no process joined'}")
    if report.not_seen and not report.findings:
        lines.append(f"not seen: {'; '.join(report.not_seen)}")
    if report.num_known:
        lines.append(f"{counted(report.num_known, 'known finding')} accepted by the baseline")
    if report.num_hidden:
        lines.append(f"{report.num_hidden} hidden by --select or --ignore")
    if report.num_suppressed:
        lines.append(f"{report.num_suppressed} suppressed by a comment in the source")
    lines += [f"unused suppression: {short_path(place, report.run)}" for place in report.unused_suppressions]
    if next_command:
        lines.append(f"next: {next_command}")
    return lines


def _by_severity(findings: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for f in findings:
        counts[f.severity.name] = counts.get(f.severity.name, 0) + 1
    return counts


def _totals_line(report: Report) -> str:
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
