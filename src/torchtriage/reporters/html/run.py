"""What ran and what was seen of it: the processes side by side, the environment, what was watched and what was not."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from torchtriage.findings.history import ProcessHistory
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import items, note, section, table, text
from torchtriage.reporters.summary import tap_text
from torchtriage.text import duration

MAX_PROCESSES = 256
_NAMES = {
    "argv": "Command", "cwd": "Working folder", "path": "Recording", "exit_status": "Exit status", "start": "Began", "end": "Ended",
    "torch": "torch", "python": "Python", "torchtriage": "torchtriage", "host": "Host", "platform": "Platform", "cpu_count": "Cores",
    "executable": "Interpreter", "num_processes": "Processes", "ranks": "Ranks", "origin": "Read from",
}
_COLUMNS: tuple[tuple[str, Callable[[ProcessHistory], float | None], Callable[[float], str]], ...] = (
    ("Compiles", lambda p: p.num_compiles, "{:,}".format), ("Recompiles", lambda p: p.num_recompiles, "{:,}".format),
    ("Breaks", lambda p: p.num_breaks, "{:,}".format), ("Compiling", lambda p: p.compile_seconds, duration),
    ("Eager calls", lambda p: p.eager_calls, "{:,}".format), ("Steps", lambda p: p.num_steps, "{:,}".format),
    ("A step", lambda p: p.step_milliseconds, lambda ms: duration(ms / 1000)), ("Steady after", lambda p: p.steady_time, duration),
    ("Began", lambda p: p.start, "{:.2f} s".format), ("Ended", lambda p: p.end, "{:.2f} s".format),
)


def processes_section(report: Report) -> str:
    processes = report.history.processes
    if len(processes) < 2:
        return ""
    columns = [(name, [get(p) for p in processes[:MAX_PROCESSES]], show) for name, get, show in _COLUMNS]
    rows = [
        [text(p.name), text(p.pid) if p.pid is not None else "", *(_cell(values, row, show) for _, values, show in columns)]
        for row, p in enumerate(processes[:MAX_PROCESSES])
    ]
    more = len(processes) - MAX_PROCESSES
    head = ["Process", "pid", *(name for name, _, _ in columns)]
    return section(
        "processes", "Processes side by side", note("Bold: the largest of a column in which the processes differ."),
        table("Processes", head, rows, numbers=range(1, len(head))), note(f"{more} more processes not listed.") if more > 0 else "",
    )


def _cell(values: list[float | None], row: int, show: Callable[[float], str]) -> str:
    value = values[row]
    if value is None:
        return '<span class="quiet">–</span>'
    known = [v for v in values if v is not None]
    shown = text(show(value))
    # Two processes never take the very same time; only what is shown differently differs.
    stands_out = value == max(known) and len({show(v) for v in known}) > 1
    return f"<b>{shown}</b>" if stands_out else shown


def environment_section(report: Report) -> str:
    run = report.run
    rows = [(label, _fact(key, run[key])) for key, label in _NAMES.items() if run.get(key) not in (None, "", [], ())]
    rows += [(str(key), str(run[key])) for key in run if key not in _NAMES and key != "environment" and run[key] not in (None, "", [], ())]
    variables = run.get("environment")
    if isinstance(variables, Mapping):
        rows += [(str(name), str(value)) for name, value in variables.items()]
    if not rows:
        return section("environment", "Environment", note("Nothing is known of where this ran."))
    listed = "".join(f"<dt>{text(name)}</dt><dd><code>{text(value)}</code></dd>" for name, value in rows)
    return section("environment", "Environment", f'<dl class="pairs">{listed}</dl>')


def _fact(key: str, value: Any) -> str:
    if key in ("start", "end"):
        return moment(value)
    if isinstance(value, (list, tuple)):
        return (" " if key == "argv" else ", ").join(map(str, value))
    return str(value)


def moment(value: object) -> str:
    """Seconds since the epoch as a date and time; what is no such number, as it stands."""
    try:
        return datetime.datetime.fromtimestamp(float(str(value)), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return str(value)


def observed_section(report: Report) -> str:
    watched = items(map(tap_text, report.watched)) or '<li class="quiet">Nothing: torch was not imported, or no process joined.</li>'
    missing = items(map(tap_text, report.not_seen)) or '<li class="quiet">Nothing is known to be missing.</li>'
    return section(
        "observed", "What was watched, and what was not observed",
        f'<div class="halves"><div><h3>Watched</h3><ul>{watched}</ul></div><div><h3>Not observed</h3><ul>{missing}</ul></div></div>',
    )
