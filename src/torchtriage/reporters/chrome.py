"""A trace for Perfetto or chrome://tracing: events of every process on one time axis."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from torchtriage.findings.history import Curve, History, Moment, MomentKind, ProcessHistory
from torchtriage.findings.report import TOTALS, Report
from torchtriage.recording.series import STEP_SECONDS
from torchtriage.reporters.summary import tap_text

Row = dict[str, Any]
Span = tuple[int, int]      # begin and length in microseconds

# The threads of a process; overlapping compiles use further threads after COMPILES.
STEPS, BREAKS, REFUSALS, ANOMALIES, COMPILES = 1, 2, 3, 4, 5
THREADS = 1000          # thread numbers per process: a viewer treats the same number in two processes as one thread
BY_STEP = 100_000       # added to the number of a process for its track by step
STEP_LENGTH = 1000      # microseconds per step if the times of steps are unknown: 1 ms on the axis is one step

_THREADS = {
    MomentKind.BREAK: BREAKS,
    MomentKind.LIMIT: REFUSALS,
    MomentKind.SKIP: REFUSALS,
    MomentKind.ANOMALY: ANOMALIES,
    MomentKind.COMPILE: COMPILES,
    MomentKind.RECOMPILE: COMPILES,
}
_NAMES = {
    STEPS: "steps",
    BREAKS: "graph breaks",
    REFUSALS: "limits and skips",
    ANOMALIES: "anomalies",
    COMPILES: "compile",
}


def render(report: Report) -> str:
    """Trace Event Format, as JSON; `otherData` has the report's totals and the taps that were missing."""
    history = report.history
    codes = {finding.fingerprint: finding.code for finding in report.findings}
    moments: dict[int, list[Moment]] = defaultdict(list)
    for moment in history.moments:
        moments[moment.process].append(moment)
    rows: list[Row] = []
    for index, process in enumerate(history.processes):
        rows += _process(index, process, moments[index], codes)
        rows += _steps(history, index, process)
    rows.sort(key=lambda row: (row["ph"] != "M", row["ts"], -row.get("dur", 0)))
    other = {
        "run_start": history.start,
        "run_seconds": history.seconds,
        "totals": {name: report.totals.get(name) for name in TOTALS},
        "not_seen": [_text(tap_text(tap)) for tap in report.not_seen],
    }
    data = {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": other}
    return json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n"


def _process(index: int, process: ProcessHistory, moments: Sequence[Moment], codes: Mapping[str, str]) -> Iterator[Row]:
    ordered = sorted(moments, key=lambda m: (_span(m)[0], -_span(m)[1]))
    lanes = iter(_lanes([_span(m) for m in ordered if _THREADS[m.kind] == COMPILES]))
    threads = dict(_NAMES)
    for moment in ordered:
        thread = _THREADS[moment.kind]
        if thread == COMPILES and (lane := next(lanes)):
            thread += lane
            threads[thread] = f"compile ({lane + 1})"
        yield _row(moment, _pid(index), thread, codes)
    yield from _name(_pid(index), _text(process.name), index, threads)


def _pid(index: int) -> int:
    """Processes are numbered, as process ids may repeat across machines."""
    return index + 1


def _span(moment: Moment) -> Span:
    return _microseconds(moment.time), _microseconds(moment.seconds or 0.0)


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))


def _lanes(spans: Sequence[Span]) -> list[int]:
    """The lane of each compile, such that in one lane each compile follows or encloses the next.

    `spans` are sorted by their begin.
    """
    open_ends: list[list[int]] = []     # per lane, the ends of the compiles that are still open, the innermost last
    numbers = []
    for begin, length in spans:
        for ends in open_ends:
            while ends and ends[-1] <= begin:
                ends.pop()
        free = (number for number, ends in enumerate(open_ends) if not ends or begin + length <= ends[-1])
        number = next(free, len(open_ends))
        if number == len(open_ends):
            open_ends.append([])
        open_ends[number].append(begin + length)
        numbers.append(number)
    return numbers


def _name(pid: int, name: str, order: int, threads: Mapping[int, str]) -> Iterator[Row]:
    """The names of a process and its threads in the viewer, and the order in which it shows them."""
    rows = [(0, "process_name", {"name": name}), (0, "process_sort_index", {"sort_index": order})]
    for thread, thread_name in threads.items():
        rows += [(thread, "thread_name", {"name": thread_name}), (thread, "thread_sort_index", {"sort_index": thread})]
    for thread, kind, args in rows:
        yield {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": pid * THREADS + thread, "args": args}


def _row(moment: Moment, pid: int, thread: int, codes: Mapping[str, str]) -> Row:
    """A slice; or a point in time for a moment without a length: a break, or a compile whose end was not recorded."""
    begin, length = _span(moment)
    args = {
        "reason": _text(moment.detail),
        "step": moment.step,
        "compile_id": moment.compile_id,
        "finding": codes.get(moment.fingerprint),
    }
    shape: Row = {"ph": "i", "s": "t"} if moment.seconds is None else {"ph": "X", "dur": length}
    return {
        "name": _text(moment.label) or str(moment.kind),
        "cat": str(moment.kind),
        **shape,
        "ts": begin,
        "pid": pid,
        "tid": pid * THREADS + thread,
        "args": {name: value for name, value in args.items() if value not in (None, "")},
    }


def _steps(history: History, index: int, process: ProcessHistory) -> Iterator[Row]:
    """The step times at the times of the steps; on a separate axis, in steps, if those times were not recorded."""
    curves = (c for c in history.curves if c.process == index and c.name == STEP_SECONDS and len(c.values))
    curve = next(curves, None)
    if curve is None:
        return
    if len(curve.times):
        yield from _placed_steps(curve, process.num_steps, _pid(index))
        return
    pid = _pid(index) + BY_STEP
    yield from _name(pid, f"{_text(process.name)} by step: 1 ms on the axis is one step", BY_STEP + index, {})
    for step, seconds in zip(curve.steps, curve.values, strict=True):
        if math.isfinite(seconds):
            yield _counter(pid, round(step) * STEP_LENGTH, seconds)


def _placed_steps(curve: Curve, num_steps: int | None, pid: int) -> Iterator[Row]:
    """One slice per point; in a long run a point is the mean of several steps."""
    points = []
    for step, seconds, time in zip(curve.steps, curve.values, curve.times, strict=True):
        if math.isfinite(seconds) and math.isfinite(time):
            points.append((round(step), seconds, _microseconds(time)))
    for (step, seconds, begin), following in zip_longest(points, points[1:]):
        next_step, _, end = following or (max(step, num_steps or 0) + 1, 0.0, None)
        name = f"step {step}" if next_step == step + 1 else f"steps {step} to {next_step - 1}"
        length = _microseconds(seconds * (next_step - step)) if end is None else end - begin
        yield _counter(pid, begin, seconds)
        yield {
            "name": name,
            "cat": "step",
            "ph": "X",
            "ts": begin,
            "dur": length,
            "pid": pid,
            "tid": pid * THREADS + STEPS,
            "args": {"milliseconds a step": round(seconds * 1e3, 6)},
        }


def _counter(pid: int, time: int, seconds: float) -> Row:
    return {
        "name": "step time",
        "ph": "C",
        "ts": time,
        "pid": pid,
        "tid": pid * THREADS + STEPS,
        "args": {"ms": round(seconds * 1e3, 6)},
    }


def _text(text: str) -> str:
    """A file name that is not UTF-8 contains lone surrogates, which strict JSON readers reject."""
    return text.encode("utf-8", "backslashreplace").decode()
