"""Findings as text for a terminal: at most three screens, the worst first, then the next command."""

from collections.abc import Mapping
from typing import Any

from torchtriage.findings.model import UNKNOWN_PLACE, Finding, Location, OwnerKind
from torchtriage.findings.proof.remedy import proof_sentence
from torchtriage.findings.report import Report
from torchtriage.reporters.lines import Line, field, printed, wrapped
from torchtriage.reporters.shapes import study_lines
from torchtriage.reporters.summary import (
    MAX_RANKS,
    SHORT_NOTE,
    by_severity,
    cost_text,
    measure_hint,
    not_seen,
    not_shown,
    nothing_found,
    short_path,
    totals_line,
    watched_line,
)
from torchtriage.text import numbered, shortened

MAX_LINES = 120     # three screens
_COLOURS = {"P0": "bold white on red", "P1": "bold red", "P2": "yellow", "P3": "cyan", "P4": "dim"}


def render(
    report: Report, *, width: int = 100, colour: bool = False, verbose: bool = False, next_command: str = "",
) -> str:
    """The report as text, with ANSI colours if `colour` is set; all of it if `verbose` is set."""
    width = max(60, width)
    lines: list[Line] = []
    if report.shapes is not None:
        lines = [*study_lines(report.shapes, width=width, verbose=verbose), ("", None)]
    budget = MAX_LINES - len(lines)
    num_shown = 0
    explained: set[str] = set()     # recompiles that a recompile limit above already explains
    for finding in report.findings:
        if finding.fingerprint in explained and not verbose:
            block = [*_head(finding, width), ("  see TT301 above, which it led to", None)]
        else:
            block = _finding(finding, report.run, width, verbose)
        if finding.code == "TT301":
            explained |= set(finding.related)
        budget -= len(block) + 1
        if budget < 0 and num_shown and not verbose:
            break
        lines += [*block, ("", None)]
        num_shown += 1
    for line in _closing(report, num_shown):
        lines += [(part, None) for part in wrapped(line, width, "", "  ")]
    for line in (measure_hint(report), f"next: {next_command}" if next_command else ""):
        if line:
            lines.append((line, None))      # a command to be pasted, so never wrapped
    return printed(lines, width=width, colour=colour)


def _finding(f: Finding, run: Mapping[str, Any], width: int, verbose: bool) -> list[Line]:
    lines = _head(f, width)
    if f.location != UNKNOWN_PLACE:
        lines += [(line, None) for line in _fitted([f"  --> {_where(f.location, run)}", _owner(f, run)], width, 6)]
    code = _source_line(f)
    if code:
        lines.append((f"      {shortened(code, width - 6)}", "dim"))
    lines += field("why", f.cause + (f" [{f.upstream}]" if f.upstream else ""), width)
    lines += field("fix", f.fix.text, width)
    if f.proof is not None:
        lines += field("proof", proof_sentence(f.proof), width)
    if len(f.cost.note) > SHORT_NOTE:
        lines += field("cost", f.cost.note, width)
    for folded in f.evidence.folded[: None if verbose else 3]:
        lines += field("with", folded, width)
    if len(f.evidence.folded) > 3 and not verbose:
        lines += field("with", f"{len(f.evidence.folded) - 3} more (-v)", width)
    if verbose:
        for note in f.evidence.notes:
            lines += field("note", note, width)
        lines += field("id", f.fingerprint, width)
    lines += field("more", f"torchtriage explain {f.code}", width)
    return lines


def _head(f: Finding, width: int) -> list[Line]:
    start = f"{f.code} {f.severity.name}  "
    lines = _fitted([start + f.title, cost_text(f.cost)], width, len(start))
    return [(line, _COLOURS[f.severity.name]) for line in lines]


def _fitted(parts: list[str], width: int, indent: int) -> list[str]:
    """The parts in one line, three spaces apart; if that is too long, each on separate lines, the first outdented."""
    parts = [part for part in parts if part]
    line = "   ".join(parts)
    if len(line) <= width:
        return [line]
    start, first = parts[0][:indent], parts[0][indent:]
    lines = []
    for part in (first, *parts[1:]):
        whole = " " * indent + part
        lines += [whole] if len(whole) <= width else wrapped(part, width, " " * indent)
    return [start + lines[0][indent:], *lines[1:]]


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
        parts.append(numbered("rank", f.ranks, MAX_RANKS))
    return f"({'; '.join(parts)})" if parts else ""


def _source_line(f: Finding) -> str:
    for line in f.evidence.source:
        if line.is_place:
            return f"{line.number} | {line.text.strip()}"
    return ""


def _closing(report: Report, num_shown: int) -> list[str]:
    lines = []
    left = report.findings[num_shown:]
    if left:
        lines.append(f"{len(left)} more ({by_severity(left)}); see them all with -v")
    lines.append(totals_line(report))
    if not report.findings:
        lines.append(nothing_found(report))
        lines.append(watched_line(report))
    if report.not_seen:
        lines.append(f"not seen: {'; '.join(not_seen(report))}")
    return [*lines, *not_shown(report)]
