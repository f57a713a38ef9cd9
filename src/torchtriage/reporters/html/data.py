"""The data of the charts, as compact columns: each string once, no more points than a screen can show."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torchtriage.findings.history import Curve, History, Moment, MomentKind, ProcessHistory
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
# Charts in this order come first; the monitor's own come last, all others in between.
FIRST = (
    LOSS, GRAD_NORM, GRAD_NORM_AFTER_CLIP, WEIGHT_NORM, series_of(UPDATE_RATIO, ""), GROUP_PREFIX,
    SCALER_PREFIX, PPO_PREFIX, LSTM_PREFIX,
)
LAST = MONITOR_PREFIX
MAX_LANES = 16          # processes on the timeline
MAX_MOMENTS = 40_000
MAX_POINTS = 1024       # per line: about one per pixel
MAX_CHARTS = 48
MAX_ANOMALIES = 500
MAX_ROWS = 160          # of the heat map
MAX_COLUMNS = 240
MAX_CHARACTERS = 400_000    # of all details; the findings have these texts too
TICKS = 10_000          # times are integers in units of 0.1 ms
NOT_FINITE = -1         # in the heat map; a norm is never negative


class Strings:
    """Stores each string once, by number; 0 is the empty string.

    Beyond the budget a new string is replaced by the empty one and counted.
    """

    def __init__(self, budget: int = MAX_CHARACTERS) -> None:
        self.all = [""]
        self.num_dropped = 0
        self._budget = budget
        self._numbers = {"": 0}

    def number(self, text: str, most: int = 200) -> int:
        text = printable(text[:most])
        if text in self._numbers:
            return self._numbers[text]
        if len(text) > self._budget:
            self.num_dropped += 1
            return 0
        self._numbers[text] = len(self.all)
        self.all.append(text)
        self._budget -= len(text)
        return self._numbers[text]


def chart_data(scope: Scope) -> dict[str, Any]:
    history = scope.report.history
    lanes = history.processes[:MAX_LANES]
    return {
        "kinds": [str(kind) for kind in KINDS],
        "ticks": TICKS,
        "seconds": number(history.seconds, 6),
        "findings": scope.ids,
        "codes": [printable(f.code) for f in scope.report.findings],
        "lanes": [_lane(process) for process in lanes],
        "moments": moment_columns(scope),
        "steps": [step_curve(history, lane) for lane in range(len(lanes))],
        "lines": line_charts(history),
        "heat": heat_map(history),
        "anomalies": anomalies(history),
    }


def _lane(process: ProcessHistory) -> dict[str, Any]:
    return {
        "name": printable(process.name),
        "steadyTime": number(process.steady_time, 6),
        "steadyStep": process.steady_step,
        "start": number(process.start, 6),
        "end": number(process.end, 6),
    }


def anomalies(history: History) -> list[tuple[int, str]]:
    """(step, label) of the first anomalies."""
    marks = []
    for moment in history.moments:
        if moment.kind is MomentKind.ANOMALY and moment.step is not None:
            marks.append((moment.step, printable(moment.label[:200])))
    return marks[:MAX_ANOMALIES]


def moment_columns(scope: Scope) -> dict[str, Any]:
    """One list per field; each time is the difference to the previous one."""
    history = scope.report.history
    moments = drawn_moments(history)
    strings = Strings()
    ticks = [round(m.time * TICKS) for m in moments]
    return {
        "kind": [KINDS.index(m.kind) for m in moments],
        "time": [now - before for now, before in zip(ticks, [0, *ticks], strict=False)],
        "lane": [m.process for m in moments],
        "seconds": [number(m.seconds, 3) for m in moments],
        "step": [m.step for m in moments],
        "label": [strings.number(m.label) for m in moments],
        "id": [strings.number(m.compile_id) for m in moments],
        "detail": [strings.number(m.detail) for m in moments],
        "finding": [scope.index.get(m.fingerprint, -1) for m in moments],
        "strings": strings.all,
        "numLeftOut": len(history.moments) - len(moments),
        "numDropped": strings.num_dropped,
    }


def drawn_moments(history: History) -> list[Moment]:
    """The moments to draw, sorted by time. Of too many of one kind in one process, only every n-th is drawn."""
    groups: dict[tuple[int, MomentKind], list[Moment]] = defaultdict(list)
    for moment in history.moments:
        if 0 <= moment.process < MAX_LANES and math.isfinite(moment.time):
            groups[moment.process, moment.kind].append(moment)
    most = max(1, MAX_MOMENTS // max(1, len(groups)))
    drawn: list[Moment] = []
    for group in groups.values():
        drawn += group[::math.ceil(len(group) / most)]
    return sorted(drawn, key=lambda m: m.time)


def step_curve(history: History, lane: int) -> dict[str, Any] | None:
    """Seconds per step, and the time at which each step began if the recording has it."""
    curve = next((c for c in history.curves if c.name == STEP_SECONDS and c.process == lane and c.values), None)
    if curve is None:
        return None
    points = drawn_points(curve.values, MAX_POINTS)
    has_times = len(curve.times) == len(curve.values)
    return {
        "steps": [number(curve.steps[i], 9) for i in points],
        "values": [number(curve.values[i], 3) for i in points],
        "times": [number(curve.times[i], 7) for i in points] if has_times else None,
    }


def drawn_points(values: Sequence[float], most: int) -> list[int]:
    """The indices of the points to draw: the first, the last, and the extremes of each interval of equal length.

    NaN and infinity count as the highest value.
    """
    if len(values) <= most:
        return list(range(len(values)))

    def height(i: int) -> float:
        return values[i] if math.isfinite(values[i]) else math.inf

    num_intervals = most // 2 - 1
    points = {0, len(values) - 1}
    for k in range(num_intervals):
        interval = range(k * len(values) // num_intervals, (k + 1) * len(values) // num_intervals)
        points |= {min(interval, key=height), max(interval, key=height)}
    return sorted(points)


def health_curves(history: History) -> tuple[list[Curve], list[Curve]]:
    """(lines, rows of the heat map): telemetry of the model and of groups, and the gradient norms of tensors."""
    others = [c for c in history.curves if c.name != STEP_SECONDS and c.values]
    rows = [c for c in others if c.name.startswith(HEAT_PREFIX) and not c.name.startswith(GROUP_PREFIX)]
    tensors = {_tensor(c) for c in rows}
    return sorted((c for c in others if _tensor(c) not in tensors), key=_order), rows


def _order(curve: Curve) -> int:
    """The position of a curve's chart; an item of FIRST that ends in / or : is a prefix of names."""
    for i, name in enumerate(FIRST):
        if curve.name == name or (name[-1] in "/:" and curve.name.startswith(name)):
            return i
    return len(FIRST) + curve.name.startswith(LAST)


def tensor_curves(history: History) -> list[Curve]:
    """The other curves of the tensors that are rows of the heat map; they are too many to draw."""
    lines, rows = health_curves(history)
    drawn = {c.name for c in (*lines, *rows)} | {STEP_SECONDS}
    return [c for c in history.curves if c.name not in drawn and c.values]


def _tensor(curve: Curve) -> str:
    """`/fc.weight` for `weight_norm/fc.weight`; empty for a quantity of the entire model."""
    return curve.name[curve.name.index("/") :] if "/" in curve.name else ""


def line_charts(history: History) -> list[dict[str, Any]]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for curve in health_curves(history)[0]:
        points = drawn_points(curve.values, MAX_POINTS)
        if len(by_name) < MAX_CHARTS or curve.name in by_name:
            by_name.setdefault(curve.name, []).append({
                "process": process_name(history, curve),
                "steps": [number(curve.steps[i], 9) for i in points],
                "values": [number(curve.values[i]) for i in points],
            })
    return [{"name": printable(name), "curves": curves} for name, curves in by_name.items()]


def process_name(history: History, curve: Curve) -> str:
    if 0 <= curve.process < len(history.processes):
        return printable(history.processes[curve.process].name)
    return ""


def heat_map(history: History) -> dict[str, Any] | None:
    """One row per tensor, one cell per interval of steps; a cell has the largest value, so that a spike is visible."""
    curves = health_curves(history)[1][:MAX_ROWS]
    steps = [s for c in curves for s in c.steps if math.isfinite(s)]
    if not steps:
        return None
    low, high = min(steps), max(steps)
    columns = min(MAX_COLUMNS, max(len(c.steps) for c in curves))
    names = [c.name.removeprefix(HEAT_PREFIX) for c in curves]
    if len({c.process for c in curves}) > 1:
        names = [f"{name} ({process_name(history, c)})" for name, c in zip(names, curves, strict=True)]
    return {
        "low": number(low, 9),
        "high": number(high, 9),
        "columns": columns,
        "names": [printable(name) for name in names],
        "rows": [_heat_row(curve, low, high, columns) for curve in curves],
    }


def _heat_row(curve: Curve, low: float, high: float, columns: int) -> list[float | int | None]:
    row: list[float | None] = [None] * columns
    for step, value in zip(curve.steps, curve.values, strict=False):
        if math.isfinite(step):
            column = min(columns - 1, int((step - low) / ((high - low) or 1) * columns))
            largest = row[column]
            if not math.isfinite(value) or largest == NOT_FINITE:
                row[column] = NOT_FINITE
            elif largest is None or value > largest:
                row[column] = value
    return [number(value, 3) for value in row]
