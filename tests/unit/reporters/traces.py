"""A strict reader of the Trace Event Format, as far as Perfetto and chrome://tracing agree on it."""

import json
import math
from collections import defaultdict
from typing import Any

Row = dict[str, Any]

KEYS = {
    "M": {"name", "ph", "ts", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "cat", "ph", "s", "ts", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "tid", "args"},
}
METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}


def read_trace(text: str) -> dict[str, Any]:
    """The trace; an assertion fails where a viewer would stumble."""
    trace: dict[str, Any] = json.loads(text, parse_constant=lambda name: _refuse(f"{name} is not JSON"))
    text.encode("utf-8")    # a lone surrogate would fail here
    rows = trace["traceEvents"]
    for row in rows:
        _check(row)
    times = [row["ts"] for row in rows if row["ph"] != "M"]
    assert times == sorted(times)
    _check_names(rows)
    _check_nesting(rows)
    return trace


def _refuse(why: str) -> None:
    raise AssertionError(why)


def _check(row: Row) -> None:
    assert row["ph"] in KEYS, row
    assert set(row) == KEYS[row["ph"]], row
    assert isinstance(row["name"], str), row
    assert row["name"], row
    assert all(type(row[key]) is int and row[key] >= 0 for key in ("ts", "dur", "pid", "tid") if key in row), row
    assert isinstance(row["args"], dict), row
    if row["ph"] == "M":
        assert list(row["args"]) == [METADATA[row["name"]]], row
    elif row["ph"] == "i":
        assert row["s"] in ("g", "p", "t"), row
    elif row["ph"] == "C":
        assert row["args"], row
        assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in row["args"].values()), row


def _check_names(rows: list[Row]) -> None:
    """Every process and every thread that shows something has exactly one name, and no thread is in two processes."""
    drawn = [row for row in rows if row["ph"] in ("X", "i")]
    for kind, key, used in (
        ("process_name", "pid", {row["pid"] for row in rows}),
        ("thread_name", "tid", {row["tid"] for row in drawn}),
    ):
        named = [row[key] for row in rows if row["name"] == kind]
        assert len(named) == len(set(named)), kind
        assert used <= set(named), (kind, used - set(named))
    assert len({(row["pid"], row["tid"]) for row in drawn}) == len({row["tid"] for row in drawn})


def _check_nesting(rows: list[Row]) -> None:
    """On one thread a slice is inside the open one, or begins after its end."""
    threads: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["ph"] == "X":
            threads[row["pid"], row["tid"]].append(row)
    for slices in threads.values():
        open_ends: list[int] = []
        for row in slices:
            while open_ends and open_ends[-1] <= row["ts"]:
                open_ends.pop()
            assert not open_ends or row["ts"] + row["dur"] <= open_ends[-1], row
            open_ends.append(row["ts"] + row["dur"])


def of_phase(trace: dict[str, Any], phase: str, category: str | None = None) -> list[Row]:
    return [row for row in trace["traceEvents"] if row["ph"] == phase and category in (None, row.get("cat"))]


def tracks(trace: dict[str, Any], name: str = "process_name") -> list[str]:
    return [row["args"]["name"] for row in trace["traceEvents"] if row["name"] == name]
