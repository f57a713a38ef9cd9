"""The head of the page: the worst problem, the costs, the first fix."""

from collections import Counter

from torchtriage.findings.model import CostKind, Severity
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import NOT_KNOWN, Scope, note, text, what_is_timed
from torchtriage.reporters.shape_text import verdict as shape_verdict
from torchtriage.reporters.summary import (
    NOTHING_WATCHED,
    compile_share,
    measure_hint,
    not_seen,
    not_shown,
    nothing_found,
    tap_text,
)
from torchtriage.text import counted, duration, row

MEANING = {
    "P0": "weights, loss or data are corrupt, or the run is dead",
    "P1": "a fifth or more of steady state is lost, compiled code silently runs eager, or learning has collapsed",
    "P2": "a twentieth or more of steady state is lost, or it grows with the run",
    "P3": "measurable",
    "P4": "cosmetic",
}


_COMPILED = ("compiles", "recompiles", "graph_breaks")      # totals of a run in which something was compiled


def badge(severity: Severity) -> str:
    return f'<span class="badge {severity.name}" title="{MEANING[severity.name]}">{severity.name}</span>'


def what_is_wrong(report: Report) -> str:
    """The title of the worst finding, or that there is none."""
    if not report.findings:
        return nothing_found(report).capitalize() if report.watched else "Nothing was watched"
    worst = report.findings[0]
    mild = f"Nothing worse than {worst.severity.name}: " if worst.severity >= Severity.P3 else ""
    return mild + worst.title


def what_it_costs(report: Report) -> str:
    """Sentences on the costs that were observed, and on those that were not."""
    totals, seconds = report.totals, report.history.seconds
    sentences = []
    compiling = totals.get("compile_seconds")
    if compiling is not None:
        is_one = len(report.history.processes) <= 1
        subject = "Compiling took" if is_one else "The process that compiled the longest took"
        of_run = ""
        if seconds and seconds >= compiling:
            of_run = f" of the {what_is_timed(report.run)}'s {duration(seconds)}"
        share = compile_share(report)
        lead = f"{share:.0%} of this run was compiling. " if share is not None else ""
        sentences.append(f"{lead}{subject} {duration(compiling)}{of_run} (observed).")
    elif report.run.get("origin") == "recording" and not any(totals.get(name) for name in _COMPILED):
        sentences.append("Nothing was compiled.")
    elif report.findings:
        sentences.append("Compile times are not known: the source has none.")
    if totals.get("eager_calls"):
        sentences.append(f"{counted(totals['eager_calls'], 'call')} of compiled functions ran eager (observed).")
    with_share = [f for f in report.findings if f.cost.share is not None]
    most_expensive = max(with_share, key=lambda f: f.cost.share or 0.0, default=None)
    if most_expensive is not None:
        cost, location = most_expensive.cost, most_expensive.location
        place = location.function or location
        sentences.append(
            f"{most_expensive.code} at {place} alone takes {cost.share:.0%} of steady state ({cost.kind})."
        )
    num_unmeasured = sum(f.cost.kind is CostKind.NOT_MEASURED for f in report.findings)
    if num_unmeasured:
        total = counted(len(report.findings), "finding")
        sentences.append(f"The cost of {num_unmeasured} of {total} was not measured.")
    return " ".join(sentences)


def severities(report: Report) -> str:
    counts = Counter(f.severity for f in report.findings)
    total = counted(len(report.findings), "finding")
    parts = "".join(f"<li>{badge(severity)} {counts[severity]}</li>" for severity in sorted(counts))
    return f'<ul class="counts" aria-label="Findings by severity"><li><b>{total}</b></li>{parts}</ul>'


def verdict(scope: Scope) -> str:
    report = scope.report
    rows = []
    cost = what_it_costs(report)
    if cost:
        rows.append(("What it costs", text(cost)))
    if report.findings:
        first = report.findings[0]
        see = scope.link(first.fingerprint, f"See&nbsp;{text(first.code)}")
        rows.append(("What to do first", f"{text(first.fix.text.rstrip('.'))}. {see}."))
        rows += _shape_policy(report)
    else:
        rows.append(("Watched", text(row(map(tap_text, report.watched)) or NOTHING_WATCHED)))
        rows.append(("Not seen", text("; ".join(not_seen(report)) or "nothing is known to be missing")))
    answers = "".join(f"<div><dt>{name}</dt><dd>{words}</dd></div>" for name, words in rows)
    left_out = note(f"{'; '.join(not_shown(report))}.") if not_shown(report) else ""
    return (
        f'<section id="verdict" aria-labelledby="verdict-title">\n{severities(report)}\n'
        f'<h1 id="verdict-title">{text(what_is_wrong(report))}</h1>\n'
        f'<dl class="answers">{answers}</dl>\n{_tiles(report)}\n{left_out}</section>'
    )


def _shape_policy(report: Report) -> list[tuple[str, str]]:
    """The verdict on the shape policies; or the command that measures them, if a finding leaves that choice open."""
    if report.shapes is not None:
        return [("Shape policy", f'{text(shape_verdict(report.shapes))}. <a href="#shapes">See&nbsp;shapes</a>.')]
    hint = measure_hint(report)
    return [("Shape policy", text(f"{hint[0].upper()}{hint[1:]}"))] if hint else []


def _tiles(report: Report) -> str:
    totals = report.totals
    seconds = totals.get("compile_seconds")
    places = totals.get("distinct_graph_breaks")
    at_places = f" <small>at {counted(places, 'place')}</small>" if places else ""
    tiles = [
        ("compiles", _number(totals.get("compiles"))),
        ("recompiles", _number(totals.get("recompiles"))),
        ("graph breaks", _number(totals.get("graph_breaks")) + at_places),
        ("frames at their limit", _number(totals.get("frames_at_limit"))),
        ("calls run eager", _number(totals.get("eager_calls"))),
        ("compiling (observed)", _number(None if seconds is None else duration(seconds))),
        ("steps", _number(totals.get("steps"))),
    ]
    return f'<dl class="tiles">{"".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)}</dl>'


def _number(value: float | str | None) -> str:
    return NOT_KNOWN if value is None else text(f"{value:,}" if isinstance(value, int) else value)
