"""The timeline of the run: a chart by time or by step, whose content is also a sentence or a table."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from torchtriage.findings.history import History, Moment, MomentKind
from torchtriage.recording.series import STEP_SECONDS
from torchtriage.reporters.html.data import KINDS, MAX_LANES
from torchtriage.reporters.html.frames import why_there_is_nothing
from torchtriage.reporters.html.markup import NOT_KNOWN, Scope, note, section, table, text, what_is_timed
from torchtriage.text import counted, duration, row

MAX_ROWS = 100
_WORDS = {
    MomentKind.COMPILE: ("first compile", "first compiles"),
    MomentKind.RECOMPILE: ("recompile", "recompiles"),
    MomentKind.BREAK: ("graph break", "graph breaks"),
    MomentKind.LIMIT: ("recompile limit reached", "recompile limits reached"),
    MomentKind.SKIP: ("frame skipped", "frames skipped"),
    MomentKind.ANOMALY: ("anomaly", "anomalies"),
}
_CONTROLS = """<div class="controls with-script">
<fieldset class="pills"><legend class="unseen">Horizontal axis</legend>
<label class="pill"><input type="radio" name="axis" value="time" checked> by time</label>
<label class="pill"><input type="radio" name="axis" value="step"{no_steps}> by step</label></fieldset>
<div class="buttons"><button type="button" id="mark-before">Previous mark</button>
<button type="button" id="mark-after">Next mark</button>
<button type="button" id="zoom-in">Zoom in</button><button type="button" id="zoom-out">Zoom out</button>
<button type="button" id="zoom-all">Entire run</button></div></div>"""


def timeline_section(scope: Scope, columns: Mapping[str, Any]) -> str:
    """`columns` are the moments in the form that the script gets, with the number that was left out."""
    history = scope.report.history
    has_step_times = _has_step_times(history)
    if not history.moments and not has_step_times:
        why = why_there_is_nothing(scope.report)
        if history.start is not None:
            why = "Nothing was compiled and no steps were recorded."
        return section("timeline", "Timeline", note(why))
    has_steps = has_step_times or any(m.step is not None for m in history.moments)
    sentence = summary(history, what_is_timed(scope.report.run))
    return section(
        "timeline", "Timeline", f'<p class="lead">{text(sentence)}</p>', _legend(history),
        _CONTROLS.format(no_steps="" if has_steps else " disabled"),
        '<div class="chart with-script" id="timeline-chart">'
        f'<canvas role="img" aria-label="Timeline. {text(sentence)}"></canvas></div>',
        '<p id="readout" class="with-script" aria-live="polite">'
        "Point at a mark to see what it is, drag to zoom, click to go to its finding.</p>",
        '<noscript><p class="quiet">The chart needs JavaScript; the table has the same content.</p></noscript>',
        _not_drawn(history, columns["numLeftOut"], columns["numDropped"]),
        _as_table(scope),
    )


def summary(history: History, timed: str = "run") -> str:
    """The content of the chart in one or two sentences."""
    counts = _counts(history)
    events = row(counted(counts[kind], *_WORDS[kind]) for kind in KINDS if counts[kind])
    if history.seconds:
        verb = "took" if timed == "run" else "spans"
        length = f"The {timed} {verb} {duration(history.seconds)}"
    else:
        length = f"The duration of the {timed} is not known"
    sentences = f"{length}: {events}." if events else f"{length}; nothing was compiled."
    return sentences + _steady_sentence(history)


def _steady_sentence(history: History) -> str:
    steady = [p for p in history.processes if p.steady_time is not None]
    last = max(steady, key=lambda p: p.steady_time or 0.0, default=None)
    if last is None or last.steady_time is None:
        return ""
    if last.steady_step is None:
        at_step = ""
    elif last.steady_step == 0:
        at_step = ", before the end of the first step"
    else:
        at_step = f", at step {last.steady_step}"
    process = f", in {last.name}," if len(steady) > 1 else ""
    ended = f"ended after {duration(last.steady_time)}{at_step}"
    later = sum(m.kind is MomentKind.RECOMPILE and m.time > last.steady_time for m in history.moments)
    what_follows = "steady state begins there"
    if later:
        what_follows = counted(later, "recompile follows", "recompiles follow")
    return f" The last first-time compile{process} {ended}: {what_follows}."


def _has_step_times(history: History) -> bool:
    return any(c.name == STEP_SECONDS for c in history.curves)


def _counts(history: History) -> Counter[MomentKind]:
    """Moments per kind. The backward of a compile has its own mark, but is not a separate compile."""
    return Counter(m.kind for m in history.moments if not m.is_backward)


def _legend(history: History) -> str:
    counts = _counts(history)
    entries = []
    for number, kind in enumerate(KINDS):
        if counts[kind]:
            entries.append(f'<li><i class="kind k{number}"></i>{kind} <b>{counts[kind]:,}</b></li>')
    if _has_step_times(history):
        entries.append('<li><i class="kind line"></i>step time</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _not_drawn(history: History, num_left_out: int, num_dropped: int) -> str:
    sentences = []
    if num_left_out:
        num_marks = len(history.moments)
        sentences.append(f"{counted(num_left_out, 'mark')} of {num_marks:,} not drawn, to keep the page small.")
    if num_dropped:
        sentences.append(f"{counted(num_dropped, 'detail')} of marks left out, to keep the page small.")
    num_processes = len(history.processes)
    if num_processes > MAX_LANES:
        sentences.append(
            f"{num_processes - MAX_LANES} of {num_processes} processes not drawn; all are in the table of processes."
        )
    return note(" ".join(sentences)) if sentences else ""


def _as_table(scope: Scope) -> str:
    groups: dict[tuple[str, str, str], list[Moment]] = defaultdict(list)
    for m in scope.report.history.moments:
        groups[str(m.kind), m.label, m.fingerprint].append(m)
    if not groups:
        return ""
    rows = [_table_row(scope, *key, moments) for key, moments in list(groups.items())[:MAX_ROWS]]
    more = note(f"{len(groups) - MAX_ROWS} more rows not listed.") if len(groups) > MAX_ROWS else ""
    head = ["What", "Where", "Times", "First at", "Last at", "First step", "Last step", "Took", "Finding"]
    body = table("Timeline", head, rows, numbers=range(2, 8))
    return f"<details><summary>The timeline as a table</summary>{body}{more}</details>"


def _table_row(scope: Scope, kind: str, label: str, fingerprint: str, moments: list[Moment]) -> list[str]:
    steps = [m.step for m in moments if m.step is not None]
    seconds = [m.seconds for m in moments if m.seconds is not None]
    finding = scope.finding(fingerprint)
    return [
        text(kind),
        text(label),
        f"{len(moments):,}",
        f"{min(m.time for m in moments):.2f} s",
        f"{max(m.time for m in moments):.2f} s",
        str(min(steps)) if steps else NOT_KNOWN,
        str(max(steps)) if steps else NOT_KNOWN,
        duration(sum(seconds)) if seconds else "",
        scope.link(fingerprint, text(finding.code)) if finding else "",
    ]
