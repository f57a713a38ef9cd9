"""The health of the learning from telemetry: curves by step, a heat map of gradient norms, marks for anomalies."""

import math
from collections.abc import Sequence

from torchtriage.findings.history import Curve, MomentKind
from torchtriage.reporters.html.data import LAST, MAX_CHARTS, MAX_ROWS, health_curves, process_name, tensor_curves
from torchtriage.reporters.html.markup import Scope, note, section, table, text
from torchtriage.text import counted

MAX_LISTED = 300


def health_section(scope: Scope, num_unexplained: int = 0) -> str:
    """`num_unexplained`: anomalies without a finding in this report, which are not drawn."""
    history = scope.report.history
    lines, rows = health_curves(history)
    others = tensor_curves(history)
    anomalies = [m for m in history.moments if m.kind is MomentKind.ANOMALY]
    if not lines and not rows and not anomalies and not num_unexplained:
        return section("health", "Health of the learning", note("No telemetry was recorded."))
    by_name: dict[str, list[Curve]] = {}
    for curve in lines:
        by_name.setdefault(curve.name, []).append(curve)
    drawn = list(by_name.items())[:MAX_CHARTS]
    charts = [_chart("line", number, name, curves) for number, (name, curves) in enumerate(drawn)]
    if rows:
        charts.append(_chart("heat", 0, "gradient norm by layer", rows[:MAX_ROWS]))
    num_left = len(by_name) - len(drawn) + max(0, len(rows) - MAX_ROWS) + len(others)
    cells = [
        [text(c.name), text(process_name(history, c)), *summary_cells(c)] for c in (*lines, *rows, *others)[:MAX_LISTED]
    ]
    head = ["Curve", "Process", "Points", "First", "Last", "Least", "Most", "Not finite"]
    as_table = table("Curves", head, cells, numbers=range(2, 8))
    return section(
        "health", "Health of the learning", f'<div class="charts with-script">{"".join(charts)}</div>',
        '<noscript><p class="quiet">The charts need JavaScript; the table has their extremes.</p></noscript>',
        note(cost) if (cost := _telemetry_cost(lines)) else "",
        note(f"{counted(num_left, 'curve')} not drawn.") if num_left else "",
        note(f"{counted(len(anomalies), 'anomaly', 'anomalies')}, drawn as dashed lines.") if anomalies else "",
        note(_unexplained(num_unexplained)) if num_unexplained else "",
        f"<details><summary>The charts as a table</summary>{as_table}</details>",
    )


def _unexplained(number: int) -> str:
    noted = counted(number, "anomaly noted during the run has", "anomalies noted during the run have")
    return f"{noted} no finding here: filtered, accepted, or not confirmed by the recorded curves. They are not drawn."


def _telemetry_cost(lines: Sequence[Curve]) -> str:
    """The cost of telemetry itself and its last sampling interval; empty if they were not recorded."""
    shares = [c.values[-1] for c in lines if c.name == f"{LAST}share"]
    intervals = [c.values[-1] for c in lines if c.name == f"{LAST}interval"]
    if not shares or not intervals:
        return ""
    steps = "every step" if max(intervals) <= 1 else f"one step in {max(intervals):.0f}"
    return f"Telemetry itself took {max(shares):.2%} of the run's time (observed); at the end it sampled {steps}."


def _chart(kind: str, number: int, name: str, curves: Sequence[Curve]) -> str:
    finite = [v for c in curves for v in c.values if math.isfinite(v)]
    extent = f"between {min(finite):.4g} and {max(finite):.4g}" if finite else "no finite value"
    if len(curves) == 1 and finite:
        extent = f"{curves[0].values[0]:.4g} → {curves[0].values[-1]:.4g}, {extent}"    # the first and the last value
    steps = [s for c in curves for s in c.steps if math.isfinite(s)]
    if steps:
        extent += f" over steps {min(steps):.0f} to {max(steps):.0f}"
    return (
        f'<figure class="chart {kind}" data-chart="{number}">'
        f'<figcaption>{text(name)} <span class="quiet">{extent}</span></figcaption>'
        f'<canvas role="img" aria-label="{text(f"{name}, {extent}")}"></canvas></figure>'
    )


def summary_cells(curve: Curve) -> list[str]:
    finite = [v for v in curve.values if math.isfinite(v)]
    extremes = [f"{value:.4g}" for value in (min(finite), max(finite))] if finite else ["", ""]
    ends = [f"{value:.4g}" for value in (curve.values[0], curve.values[-1])]
    return [f"{len(curve.values):,}", *ends, *extremes, f"{len(curve.values) - len(finite):,}"]
