"""Phrases that several reporters share: totals, costs, places, taps, hidden findings."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchtriage import text
from torchtriage.findings.model import UNKNOWN_PLACE, Cost, CostKind, Finding, Severity, SourceLine
from torchtriage.findings.report import Report
from torchtriage.findings.shape_study import DECIDED_BY_SHAPES
from torchtriage.findings.tap_state import SCALARS, SOURCE, STRUCTURED_TRACE, TEXT_LOG, TapState, TapStatus
from torchtriage.text import counted, duration, listed, row

LONG_COMPILING = 10.0    # seconds; less is noise in the share of a short run
LARGE_SHARE = 0.10

MAX_RANKS = 8
SHORT_NOTE = 40     # a longer note on the cost gets its own line
NOTHING_WATCHED = "nothing: torch was not imported, or no process joined"


def short_path(path: str, run: Mapping[str, Any]) -> str:
    """A path below the working folder of the run, or below site-packages."""
    return text.short_path(path, (str(run.get("cwd") or ""),))


def project_path(path: str, run: Mapping[str, Any]) -> str | None:
    """A path below the working folder of the run; None for a path that is not a file of the project."""
    if path == UNKNOWN_PLACE.path:
        return None
    return text.project_path(path, str(run.get("cwd") or ""))


def level_of(severity: Severity) -> str:
    """The level that tools which annotate source give a finding: error, warning or note."""
    if severity <= Severity.P1:
        return "error"
    return "warning" if severity is Severity.P2 else "note"


def cost_text(cost: Cost) -> str:
    """A measured cost in a few words, `1.24 s, 12.0 ms per step (observed)`; empty if nothing was measured."""
    parts = []
    if cost.seconds is not None:
        parts.append(duration(cost.seconds))
    if cost.ms_per_step is not None:
        parts.append(f"{duration(cost.ms_per_step / 1000.0)} per step")
    if cost.share is not None:
        parts.append(f"{cost.share:.0%} of steady state")
    if not parts or cost.kind is CostKind.NOT_MEASURED:
        return ""
    note = f", {cost.note}" if cost.note and len(cost.note) <= SHORT_NOTE else ""
    return f"{', '.join(parts)} ({cost.kind}{note})"


def source_text(line: SourceLine) -> str:
    """A source line with its number, `>   14 | print(y)` at the place itself."""
    return f"{'>' if line.is_place else ' '}{line.number:>5} | {line.text}"


def by_severity(findings: Iterable[Finding]) -> str:
    """`2 P1, 5 P3`."""
    counts = Counter(f.severity.name for f in findings)
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def nothing_found(report: Report) -> str:
    """What to say without findings; a program that failed may not have come to where its trouble is."""
    status = report.run.get("exit_status")
    failed = f" before the program ended with exit status {status}" if isinstance(status, int) and status else ""
    return f"{'no new findings' if report.num_known else 'no findings'}{failed}"


def compile_share(report: Report) -> float | None:
    """The share of the run that was compiling, where that is long enough to lead a report; else None."""
    compiling, run = report.totals.get("compile_seconds"), report.totals.get("run_seconds")
    if not compiling or not run or compiling < LONG_COMPILING or compiling > run:
        return None
    return compiling / run if compiling / run >= LARGE_SHARE else None


def totals_line(report: Report) -> str:
    """The counts of findings, compiles, recompiles and graph breaks, in one line."""
    if is_of_source(report):
        return _source_totals(report)
    totals = report.totals
    if report.run.get("origin") == SCALARS:
        return f"{counted(len(report.findings), 'finding')}, {counted(totals.get('steps'), 'step')}"
    breaks = counted(totals.get("graph_breaks"), "graph break")
    if totals.get("graph_breaks"):
        breaks += f" at {counted(totals.get('distinct_graph_breaks'), 'place')}"
    parts = [
        counted(len(report.findings), "finding"),
        counted(totals.get("compiles"), "compile"),
        counted(totals.get("recompiles"), "recompile"),
        breaks,
    ]
    if totals.get("frames_at_limit"):
        parts.append(counted(totals["frames_at_limit"], "frame at its limit", "frames at their limit"))
    if totals.get("eager_calls"):
        parts.append(counted(totals["eager_calls"], "eager call"))
    compile_seconds = totals.get("compile_seconds")
    if compile_seconds is not None:
        parts.append(f"{duration(compile_seconds)} compiling")
    if totals.get("steps"):
        parts.append(counted(totals["steps"], "step"))
    share = compile_share(report)
    lead = f"{share:.0%} of this run was compiling: " if share is not None else ""
    return lead + ", ".join(parts)


def is_of_source(report: Report) -> bool:
    """Whether the report is one of lint: no program ran."""
    return report.run.get("origin") == SOURCE


def _source_totals(report: Report) -> str:
    run = report.run
    parts = [
        f"{counted(len(report.findings), 'finding')} in {counted(run.get('num_files'), 'file')}",
        counted(run.get("num_compile_sites"), "torch.compile call"),
        counted(run.get("num_reached"), "function reached by them", "functions reached by them"),
    ]
    return ", ".join(parts)


def tap_text(tap: TapState) -> str:
    """A tap as a phrase: its name, and the reason if it did not watch."""
    if tap.status is TapStatus.NOT_EXPLAINED:
        remedy = "add TORCH_LOGS=graph_breaks to TORCH_TRACE, or torchtriage run"
        return f"why {counted(tap.number, 'compile')} gave up ({remedy})"
    if tap.status is TapStatus.NOT_MEASURED:
        return f"{tap.name} (torchtriage run --measure)"
    if tap.status is TapStatus.NOT_REPORTED:
        return f"{tap.name} (report it {_BY_MONITOR})"
    if tap.status is TapStatus.ONLY_LOGGED:
        return f"{tap.name}, except what the program logs{f': {tap.detail}' if tap.detail else ''}"
    if tap.status is TapStatus.TOO_FAST:
        return f"{tap.name}: {counted(tap.number, 'sample')} could not be read in time"
    if tap.status is TapStatus.NOT_PARSED:
        return f"{text.path_from_here(tap.name)} {tap.detail}"
    if tap.status is TapStatus.NO_ROOM:
        remedy = "the number of metric names per process is limited; do not put the step into the name of a metric"
        return f"{tap.name}: {counted(tap.number, 'value')} of further metrics ({remedy})"
    if tap.detail:
        return f"{tap.name}: {tap.detail}"
    return _SOURCES.get(tap.name, tap.name)


_BY_MONITOR = "with torchtriage.telemetry.Monitor; torchtriage train does"
_SOURCES: Mapping[str, str] = {
    STRUCTURED_TRACE: "graph breaks, recompiles, limits, compile times and caches of the structured trace",
    SOURCE: "the source",
    TEXT_LOG: "graph breaks, recompiles and limits in the log",
}


def not_seen(report: Report) -> list[str]:
    """What was not seen, as phrases; the parts that only a Monitor can report share the last one."""
    others = [tap for tap in report.not_seen if tap.status is not TapStatus.NOT_REPORTED]
    unreported = [tap for tap in report.not_seen if tap.status is TapStatus.NOT_REPORTED]
    if len(unreported) < 2:
        return [tap_text(tap) for tap in report.not_seen]
    names = listed(tap.name for tap in unreported)
    return [*map(tap_text, others), f"{names} (report them {_BY_MONITOR})"]


def watched_line(report: Report) -> str:
    """The taps that watched, which is the basis of "no findings"."""
    return f"watched: {row(map(tap_text, report.watched)) or NOTHING_WATCHED}"


def not_shown(report: Report) -> list[str]:
    """How many findings the baseline, flags and comments removed, and the comments that removed nothing."""
    lines = []
    if report.num_known:
        lines.append(f"{counted(report.num_known, 'known finding')} accepted by the baseline")
    if report.num_hidden:
        lines.append(f"{report.num_hidden} hidden by --select or --ignore")
    if report.num_suppressed:
        lines.append(f"{report.num_suppressed} suppressed by a comment in the source")
    lines += [f"unused suppression: {short_path(place, report.run)}" for place in report.unused_suppressions]
    return lines


def measure_hint(report: Report) -> str:
    """The command that measures shape policies, if a finding leaves that choice open.

    Empty if the policies have been measured, or if the run has no script.
    """
    if report.shapes is not None or not any(map(_is_decided_by_shapes, report.findings)):
        return ""
    script = _script(report.run.get("argv"))
    if not script:
        return ""
    return f"to measure which shape policy is fastest: torchtriage shapes {shlex.join(script)}"


def _is_decided_by_shapes(finding: Finding) -> bool:
    """Whether a shape policy may cure it. For a recompile limit, the recompiles that led to it say so, if known."""
    return finding.code in DECIDED_BY_SHAPES and (finding.code != "TT301" or not finding.related)


def _script(argv: object) -> Sequence[str]:
    """`train.py --lr 1`, or `-m package` with a launcher; empty for another command, or one with a secret removed."""
    words = [str(word) for word in argv] if isinstance(argv, (list, tuple)) else []
    if len(words) > 1 and text.file_name(words[0]).startswith("python"):
        words = words[1:]
    elif words and re.match(r"[/\\]|\w:", words[0]):
        return []       # sys.argv of a process that torchtriage did not launch: `python -m` puts an absolute path there
    is_script = bool(words) and (words[0].endswith(".py") or words[0] == "-m")
    has_secret = any("***" in word for word in words)
    return words if is_script and not has_secret else []
