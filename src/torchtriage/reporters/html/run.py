"""The sections about the run itself: processes, environment, which parts were watched."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from torchtriage.findings.history import ProcessHistory
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import items, note, section, table, text
from torchtriage.reporters.summary import not_seen, tap_text
from torchtriage.text import counted, duration

MAX_PROCESSES = 256
_NAMES = {
    "argv": "Command",
    "cwd": "Working folder",
    "path": "Recording",
    "exit_status": "Exit status",
    "start": "Began",
    "end": "Ended",
    "torch": "torch",
    "python": "Python",
    "torchtriage": "torchtriage",
    "host": "Host",
    "platform": "Platform",
    "cpu_count": "Cores",
    "executable": "Interpreter",
    "num_processes": "Processes",
    "ranks": "Ranks",
    "origin": "Read from",
}
_EMPTY: tuple[object, ...] = (None, "", [], ())
# (heading, value of a process, its text)
_COLUMNS: tuple[tuple[str, Callable[[ProcessHistory], float | None], Callable[[float], str]], ...] = (
    ("Compiles", lambda p: p.num_compiles, "{:,}".format),
    ("Recompiles", lambda p: p.num_recompiles, "{:,}".format),
    ("Breaks", lambda p: p.num_breaks, "{:,}".format),
    ("Compiling", lambda p: p.compile_seconds, duration),
    ("Eager calls", lambda p: p.eager_calls, "{:,}".format),
    ("Steps", lambda p: p.num_steps, "{:,}".format),
    ("Per step", lambda p: p.step_milliseconds, lambda ms: duration(ms / 1000)),
    ("First compiles end", lambda p: p.steady_time, duration),
    ("Began", lambda p: p.start, "{:.2f} s".format),
    ("Ended", lambda p: p.end, "{:.2f} s".format),
)


def processes_section(report: Report) -> str:
    processes = report.history.processes
    if len(processes) < 2:
        return ""
    shown = processes[:MAX_PROCESSES]
    rows = [[text(p.name), text(p.pid) if p.pid is not None else ""] for p in shown]
    for _, value_of, show in _COLUMNS:
        values = [value_of(p) for p in shown]
        for number, row in enumerate(rows):
            row.append(_cell(values, number, show))
    more = len(processes) - len(shown)
    head = ["Process", "pid", *(name for name, _, _ in _COLUMNS)]
    return section(
        "processes", "Processes side by side",
        note("Bold: the largest value of a column in which the processes differ."),
        table("Processes", head, rows, numbers=range(1, len(head))),
        note(f"{counted(more, 'more process', 'more processes')} not listed.") if more else "",
    )


def _cell(values: list[float | None], row: int, show: Callable[[float], str]) -> str:
    value = values[row]
    if value is None:
        return '<span class="quiet">–</span>'
    numbers = [v for v in values if v is not None]
    shown = text(show(value))
    # Two processes never take exactly the same time, so values with the same text count as equal.
    is_largest = value == max(numbers) and len({show(v) for v in numbers}) > 1
    return f"<b>{shown}</b>" if is_largest else shown


def environment_section(report: Report) -> str:
    run = report.run
    rows = [(label, _fact(key, run[key])) for key, label in _NAMES.items() if run.get(key) not in _EMPTY]
    for key, value in run.items():
        if key not in _NAMES and key != "environment" and value not in _EMPTY:
            rows.append((str(key), str(value)))
    variables = run.get("environment")
    if isinstance(variables, Mapping):
        rows += [(str(name), str(value)) for name, value in variables.items()]
    if not rows:
        return section("environment", "Environment", note("The environment of the run is not known."))
    pairs = "".join(f"<dt>{text(name)}</dt><dd><code>{text(value)}</code></dd>" for name, value in rows)
    return section("environment", "Environment", f'<dl class="pairs">{pairs}</dl>')


def _fact(key: str, value: Any) -> str:
    if key in ("start", "end"):
        return moment(value)
    if isinstance(value, (list, tuple)):
        return (" " if key == "argv" else ", ").join(map(str, value))
    return str(value)


def moment(value: object) -> str:
    """Seconds since the epoch as a date and time; any other value unchanged."""
    try:
        return datetime.datetime.fromtimestamp(float(str(value)), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return str(value)


def observed_section(report: Report) -> str:
    nothing = '<li class="quiet">Nothing: torch was not imported, or no process joined.</li>'
    watched = items(map(tap_text, report.watched)) or nothing
    missing = items(not_seen(report)) or '<li class="quiet">Nothing is known to be missing.</li>'
    return section(
        "observed", "Watched and not observed",
        f'<div class="halves"><div><h3>Watched</h3><ul>{watched}</ul></div>'
        f"<div><h3>Not observed</h3><ul>{missing}</ul></div></div>",
    )
