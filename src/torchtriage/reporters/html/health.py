"""What telemetry saw of the learning: lines by step, gradient norms as a heat map, anomalies as marks."""

import math
from collections.abc import Sequence

from torchtriage.findings.history import Curve, MomentKind
from torchtriage.reporters.html.data import LAST, MAX_CHARTS, MAX_ROWS, curve_owner, health_curves, tensor_curves
from torchtriage.reporters.html.markup import Scope, note, section, table, text
from torchtriage.text import counted

MAX_LISTED = 300


def health_section(scope: Scope) -> str:
    history = scope.report.history
    lines, rows = health_curves(history)
    others = tensor_curves(history)
    anomalies = [m for m in history.moments if m.kind is MomentKind.ANOMALY]
    if not lines and not rows and not anomalies:
        return section("health", "Health of the learning", note("No telemetry was recorded."))
    names = list(dict.fromkeys(c.name for c in lines))
    charts = [_chart("line", number, name, [c for c in lines if c.name == name]) for number, name in enumerate(names[:MAX_CHARTS])]
    if rows:
        charts.append(_chart("heat", 0, "gradient norm by layer", rows[:MAX_ROWS]))
    left = max(0, len(names) - MAX_CHARTS) + max(0, len(rows) - MAX_ROWS) + len(others)
    listed = [
        [text(c.name), text(curve_owner(history, c)), *summary_cells(c)] for c in (*lines, *rows, *others)[:MAX_LISTED]
    ]
    head = ["Curve", "Process", "Points", "First", "Last", "Least", "Most", "Not finite"]
    return section(
        "health", "Health of the learning", f'<div class="charts with-script">{"".join(charts)}</div>',
        '<noscript><p class="quiet">The charts need JavaScript; the table holds their extremes.</p></noscript>',
        note(cost) if (cost := _own_cost(lines)) else "",
        note(f"{counted(left, 'curve')} not drawn.") if left else "",
        note(f"{counted(len(anomalies), 'mark')} of anomalies, as dashed lines.") if anomalies else "",
        f"<details><summary>The charts as a table</summary>{table('Curves', head, listed, numbers=range(2, 8))}</details>",
    )


def _own_cost(lines: Sequence[Curve]) -> str:
    """What telemetry says of itself at the end of the run."""
    found = {name: [c.values[-1] for c in lines if c.name == f"{LAST}{name}"] for name in ("share", "interval")}
    if not all(found.values()):
        return ""
    step = "every step" if max(found["interval"]) <= 1 else f"one step in {max(found['interval']):.0f}"
    return f"Telemetry itself took {max(found['share']):.2%} of the run's time (observed); at the end it looked at {step}."


def _chart(kind: str, number: int, name: str, curves: Sequence[Curve]) -> str:
    finite = [v for c in curves for v in c.values if math.isfinite(v)]
    reach = f"from {min(finite):.4g} to {max(finite):.4g}" if finite else "no finite value"
    steps = [s for c in curves for s in c.steps if math.isfinite(s)]
    over = f" over steps {min(steps):.0f} to {max(steps):.0f}" if steps else ""
    return (
        f'<figure class="chart {kind}" data-chart="{number}"><figcaption>{text(name)} <span class="quiet">{reach}{over}</span></figcaption>'
        f'<canvas role="img" aria-label="{text(f"{name}, {reach}{over}")}"></canvas></figure>'
    )


def summary_cells(curve: Curve) -> list[str]:
    finite = [v for v in curve.values if math.isfinite(v)]
    extremes = [f"{value:.4g}" for value in (min(finite), max(finite))] if finite else ["", ""]
    ends = [f"{value:.4g}" for value in (curve.values[0], curve.values[-1])]
    return [f"{len(curve.values):,}", *ends, *extremes, f"{len(curve.values) - len(finite):,}"]
