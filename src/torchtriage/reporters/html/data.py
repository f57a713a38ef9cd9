"""What the charts are drawn from, as compact columns: each string once, no more points than a screen can show."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torchtriage.findings.history import Curve, History, Moment, MomentKind
from torchtriage.recording.series import (
    GRAD_NORM,
    GRAD_NORM_AFTER_CLIP,
    LOSS,
    LSTM_PREFIX,
    MONITOR_PREFIX,
    PPO_PREFIX,
    SCALER_PREFIX,
    STEP_SECONDS,
    UPDATE_RATIO,
    WEIGHT_NORM,
    series_of,
    series_of_group,
)
from torchtriage.reporters.html.markup import Scope, number
from torchtriage.text import printable

HEAT_PREFIX = series_of(GRAD_NORM, "")
GROUP_PREFIX = series_of_group(GRAD_NORM, "")
KINDS = tuple(MomentKind)
# Which charts come first; others stand between the program's own and those of the monitor.
FIRST = (
    LOSS, GRAD_NORM, GRAD_NORM_AFTER_CLIP, WEIGHT_NORM, series_of(UPDATE_RATIO, ""), GROUP_PREFIX,
    SCALER_PREFIX, PPO_PREFIX, LSTM_PREFIX,
)
LAST = MONITOR_PREFIX
MAX_LANES = 16          # processes drawn below each other
MAX_MOMENTS = 40_000
MAX_POINTS = 1024       # of a line: about one a pixel
MAX_CHARTS = 48
MAX_ANOMALIES = 500
MAX_ROWS = 160          # of the heat map
MAX_COLUMNS = 240
MAX_CHARACTERS = 400_000    # of all details; the findings hold the text anyway
TICKS = 10_000          # times are whole numbers of 0.1 ms
NOT_FINITE = -1         # in the heat map; a norm is never negative


class Strings:
    """Each string once, by number; 0 is the empty one. Beyond the budget a new string becomes empty, and is counted."""

    def __init__(self, budget: int = MAX_CHARACTERS) -> None:
        self.all = [""]
        self.num_dropped = 0
        self._budget = budget
        self._known = {"": 0}

    def number(self, text: str, most: int = 200) -> int:
        text = printable(text[:most])
        at = self._known.get(text)
        if at is None and len(text) > self._budget:
            self.num_dropped += 1
            return 0
        if at is None:
            at = self._known[text] = len(self.all)
            self.all.append(text)
            self._budget -= len(text)
        return at


def chart_data(scope: Scope) -> dict[str, Any]:
    history = scope.report.history
    lanes = history.processes[:MAX_LANES]
    return {
        "kinds": [str(kind) for kind in KINDS], "ticks": TICKS, "seconds": number(history.seconds, 6), "findings": scope.ids,
        "codes": [printable(f.code) for f in scope.report.findings],
        "lanes": [
            {"name": printable(p.name), "steadyTime": number(p.steady_time, 6), "steadyStep": p.steady_step,
             "start": number(p.start, 6), "end": number(p.end, 6)}
            for p in lanes
        ],
        "moments": moment_columns(scope), "steps": [step_curve(history, lane) for lane in range(len(lanes))],
        "lines": line_charts(history), "heat": heat_map(history),
        "anomalies": anomalies(history),
    }


def anomalies(history: History) -> list[tuple[int, str]]:
    found = (m for m in history.moments if m.kind is MomentKind.ANOMALY)
    return [(m.step, printable(m.label[:200])) for m in found if m.step is not None][:MAX_ANOMALIES]


def moment_columns(scope: Scope) -> dict[str, Any]:
    """One list a field; times are the difference to the one before."""
    history = scope.report.history
    moments = drawn_moments(history)
    strings = Strings()
    ticks = [round(m.time * TICKS) for m in moments]
    return {
        "kind": [KINDS.index(m.kind) for m in moments], "time": [now - before for now, before in zip(ticks, [0, *ticks], strict=False)],
        "lane": [m.process for m in moments], "seconds": [number(m.seconds, 3) for m in moments], "step": [m.step for m in moments],
        "label": [strings.number(m.label) for m in moments], "id": [strings.number(m.compile_id) for m in moments],
        "detail": [strings.number(m.detail) for m in moments], "finding": [scope.index.get(m.fingerprint, -1) for m in moments],
        "strings": strings.all, "numLeftOut": len(history.moments) - len(moments), "numDropped": strings.num_dropped,
    }


def drawn_moments(history: History) -> list[Moment]:
    """In order of time; of too many of a kind in a process, every second, third ... is drawn."""
    groups: dict[tuple[int, MomentKind], list[Moment]] = defaultdict(list)
    for moment in history.moments:
        if 0 <= moment.process < MAX_LANES and math.isfinite(moment.time):
            groups[moment.process, moment.kind].append(moment)
    most = max(1, MAX_MOMENTS // max(1, len(groups)))
    kept = [m for group in groups.values() for m in group[::math.ceil(len(group) / most)]]
    return sorted(kept, key=lambda m: m.time)


def step_curve(history: History, lane: int) -> dict[str, Any] | None:
    """Seconds a step by step, and when each step began where the recording tells."""
    curve = next((c for c in history.curves if c.name == STEP_SECONDS and c.process == lane and c.values), None)
    if curve is None:
        return None
    kept = thinned(curve.values, MAX_POINTS)
    return {
        "steps": [number(curve.steps[i], 9) for i in kept], "values": [number(curve.values[i], 3) for i in kept],
        "times": [number(curve.times[i], 7) for i in kept] if len(curve.times) == len(curve.values) else None,
    }


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Which points to draw: the lowest and the highest of each stretch; what is no number counts as the highest."""
    if len(values) <= most:
        return list(range(len(values)))
    num = most // 2
    kept: set[int] = set()
    for k in range(num):
        stretch = range(k * len(values) // num, (k + 1) * len(values) // num)
        kept |= {extreme(stretch, key=lambda i: values[i] if math.isfinite(values[i]) else math.inf) for extreme in (min, max)}
    return sorted(kept)


def health_curves(history: History) -> tuple[list[Curve], list[Curve]]:
    """(lines, rows of the heat map): what telemetry recorded of the whole and of groups, and the gradient norms of tensors."""
    others = [c for c in history.curves if c.name != STEP_SECONDS and c.values]
    rows = [c for c in others if c.name.startswith(HEAT_PREFIX) and not c.name.startswith(GROUP_PREFIX)]
    tails = {_tail(c) for c in rows}
    return sorted((c for c in others if _tail(c) not in tails), key=_place), rows


def _place(curve: Curve) -> int:
    """As in FIRST: whole names, or beginnings that end in a mark."""
    known = (i for i, name in enumerate(FIRST) if curve.name == name or (name[-1] in "/:" and curve.name.startswith(name)))
    return next(known, len(FIRST) + curve.name.startswith(LAST))


def tensor_curves(history: History) -> list[Curve]:
    """What else is known of the tensors that are rows of the heat map; too many to draw."""
    lines, rows = health_curves(history)
    drawn = {c.name for c in (*lines, *rows)} | {STEP_SECONDS}
    return [c for c in history.curves if c.name not in drawn and c.values]


def _tail(curve: Curve) -> str:
    """`/fc.weight` of `weight_norm/fc.weight`; empty for a quantity of the whole."""
    return curve.name[curve.name.index("/") :] if "/" in curve.name else ""


def line_charts(history: History) -> list[dict[str, Any]]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for curve in health_curves(history)[0]:
        kept = thinned(curve.values, MAX_POINTS)
        if len(by_name) < MAX_CHARTS or curve.name in by_name:
            by_name.setdefault(curve.name, []).append({
                "process": curve_owner(history, curve), "steps": [number(curve.steps[i], 9) for i in kept],
                "values": [number(curve.values[i]) for i in kept],
            })
    return [{"name": printable(name), "curves": curves} for name, curves in by_name.items()]


def curve_owner(history: History, curve: Curve) -> str:
    known = 0 <= curve.process < len(history.processes)
    return printable(history.processes[curve.process].name) if known else ""


def heat_map(history: History) -> dict[str, Any] | None:
    """Rows of one colour a stretch of steps; each cell is the largest value in it, so that a spike stays."""
    curves = health_curves(history)[1][:MAX_ROWS]
    steps = [s for c in curves for s in c.steps if math.isfinite(s)]
    if not steps:
        return None
    low, high = min(steps), max(steps)
    columns = min(MAX_COLUMNS, max(len(c.steps) for c in curves))
    several = len({c.process for c in curves}) > 1
    names = [c.name.removeprefix(HEAT_PREFIX) + (f" ({curve_owner(history, c)})" if several else "") for c in curves]
    return {
        "low": number(low, 9), "high": number(high, 9), "columns": columns, "names": [printable(name) for name in names],
        "rows": [_heat_row(curve, low, high, columns) for curve in curves],
    }


def _heat_row(curve: Curve, low: float, high: float, columns: int) -> list[float | int | None]:
    row: list[float | None] = [None] * columns
    for step, value in zip(curve.steps, curve.values, strict=False):
        if math.isfinite(step):
            at = min(columns - 1, int((step - low) / ((high - low) or 1) * columns))
            here = row[at]
            if not math.isfinite(value) or here == NOT_FINITE:
                row[at] = NOT_FINITE
            elif here is None or value > here:
                row[at] = value
    return [number(value, 3) for value in row]
