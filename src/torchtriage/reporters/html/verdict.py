"""The head of the page: what is wrong, what it costs, what to do first. Every word follows from the totals and the findings."""

from collections import Counter

from torchtriage.findings.model import CostKind, Severity
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import NOT_KNOWN, Scope, note, text, what_is_timed
from torchtriage.reporters.shape_text import verdict as shape_verdict
from torchtriage.reporters.summary import measure_hint, not_shown, tap_text
from torchtriage.text import counted, duration

MEANING = {
    "P0": "weights, loss or data are corrupt, or the run is dead",
    "P1": "a fifth or more of steady state is lost, compiled code runs eager without saying so, or learning has collapsed",
    "P2": "a twentieth or more of steady state is lost, or it grows with the run",
    "P3": "measurable",
    "P4": "cosmetic",
}


def badge(severity: Severity) -> str:
    return f'<span class="badge {severity.name}" title="{MEANING[severity.name]}">{severity.name}</span>'


def what_is_wrong(report: Report) -> str:
    """The worst finding; or that there is none in what was watched."""
    if not report.findings:
        return "Nothing found" if report.watched else "Nothing was watched"
    worst = report.findings[0]
    mild = f"Nothing worse than {worst.severity.name}: " if worst.severity >= Severity.P3 else ""
    return mild + worst.title


def what_it_costs(report: Report) -> str:
    """Sentences on what was observed, and on what was not."""
    totals, seconds = report.totals, report.history.seconds
    said = []
    compiling = totals.get("compile_seconds")
    if compiling is not None:
        who = "The process that compiled longest did so for" if len(report.history.processes) > 1 else "Compiling took"
        of_run = f" of the {what_is_timed(report.run)}'s {duration(seconds)}" if seconds and seconds >= compiling else ""
        said.append(f"{who} {duration(compiling)}{of_run} (observed).")
    elif report.findings:
        said.append("Compile times are not known: the source holds none.")
    if totals.get("eager_calls"):
        said.append(f"{counted(totals['eager_calls'], 'call')} of compiled functions ran eager (observed).")
    dearest = max((f for f in report.findings if f.cost.share is not None), key=lambda f: f.cost.share or 0.0, default=None)
    if dearest is not None:
        said.append(f"{dearest.code} at {dearest.location.function or dearest.location} alone takes {dearest.cost.share:.0%} "
                    f"of steady state ({dearest.cost.kind}).")
    unmeasured = sum(f.cost.kind is CostKind.NOT_MEASURED for f in report.findings)
    if unmeasured:
        said.append(f"The cost of {unmeasured} of {counted(len(report.findings), 'finding')} was not measured.")
    return " ".join(said)


def severities(report: Report) -> str:
    counts = Counter(f.severity for f in report.findings)
    parts = "".join(f"<li>{badge(severity)} {counts[severity]}</li>" for severity in sorted(counts))
    return f'<ul class="counts" aria-label="Findings by severity"><li><b>{counted(len(report.findings), "finding")}</b></li>{parts}</ul>'


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
        watched = ", ".join(map(tap_text, report.watched)) or "nothing: torch was not imported, or no process joined"
        rows.append(("Watched", text(watched)))
        rows.append(("Not seen", text("; ".join(map(tap_text, report.not_seen)) or "nothing is known to be missing")))
    told = "".join(f"<div><dt>{name}</dt><dd>{words}</dd></div>" for name, words in rows)
    left_out = note(f"{'; '.join(not_shown(report))}.") if not_shown(report) else ""
    return (
        f'<section id="verdict" aria-labelledby="verdict-title">\n{severities(report)}\n'
        f'<h1 id="verdict-title">{text(what_is_wrong(report))}</h1>\n<dl class="told">{told}</dl>\n{_tiles(report)}\n{left_out}</section>'
    )


def _shape_policy(report: Report) -> list[tuple[str, str]]:
    """What was measured of it, or how to measure it where a finding leaves that choice."""
    if report.shapes is not None:
        return [("Shape policy", f'{text(shape_verdict(report.shapes))}. <a href="#shapes">See&nbsp;shapes</a>.')]
    hint = measure_hint(report)
    return [("Shape policy", text(f"{hint[0].upper()}{hint[1:]}"))] if hint else []


def _tiles(report: Report) -> str:
    totals = report.totals
    seconds = totals.get("compile_seconds")
    places = totals.get("distinct_graph_breaks")
    tiles = [
        ("compiles", totals.get("compiles"), ""), ("recompiles", totals.get("recompiles"), ""),
        ("graph breaks", totals.get("graph_breaks"), f"at {counted(places, 'place')}" if places else ""),
        ("frames at their limit", totals.get("frames_at_limit"), ""), ("calls run eager", totals.get("eager_calls"), ""),
        ("compiling (observed)", None if seconds is None else duration(seconds), ""), ("steps", totals.get("steps"), ""),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{_number(value)}{f' <small>{more}</small>' if more else ''}</dd></div>"
                    for name, value, more in tiles)
    return f'<dl class="tiles">{shown}</dl>'


def _number(value: float | str | None) -> str:
    return NOT_KNOWN if value is None else text(f"{value:,}" if isinstance(value, int) else value)
