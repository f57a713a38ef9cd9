"""The course of the run by step and by time: a chart, a sentence that says the same, and a table for those who cannot see it."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from torchtriage.findings.history import History, Moment, MomentKind
from torchtriage.recording.series import STEP_SECONDS
from torchtriage.reporters.html.data import KINDS, MAX_LANES
from torchtriage.reporters.html.frames import why_there_is_nothing
from torchtriage.reporters.html.markup import NOT_KNOWN, Scope, note, section, table, text, what_is_timed
from torchtriage.text import counted, duration

MAX_ROWS = 100
_WORDS = {
    MomentKind.COMPILE: ("first compile", "first compiles"), MomentKind.RECOMPILE: ("recompile", "recompiles"),
    MomentKind.BREAK: ("graph break", "graph breaks"), MomentKind.LIMIT: ("recompile limit reached", "recompile limits reached"),
    MomentKind.SKIP: ("frame skipped", "frames skipped"), MomentKind.ANOMALY: ("anomaly", "anomalies"),
}
_CONTROLS = """<div class="controls with-script">
<fieldset class="pills"><legend class="unseen">Horizontal axis</legend>
<label class="pill"><input type="radio" name="axis" value="time" checked> by time</label>
<label class="pill"><input type="radio" name="axis" value="step"{no_steps}> by step</label></fieldset>
<div class="buttons"><button type="button" id="mark-before">Previous mark</button><button type="button" id="mark-after">Next mark</button>
<button type="button" id="zoom-in">Zoom in</button><button type="button" id="zoom-out">Zoom out</button>
<button type="button" id="zoom-all">Whole run</button></div></div>"""


def timeline_section(scope: Scope, columns: Mapping[str, Any]) -> str:
    """`columns` are the moments as the script gets them, with how much of them was left out."""
    history = scope.report.history
    if not history.moments and not any(c.name == STEP_SECONDS for c in history.curves):
        why = "Nothing was compiled and no step was seen." if history.start is not None else why_there_is_nothing(scope.report)
        return section("timeline", "Timeline", note(why))
    has_steps = any(m.step is not None for m in history.moments) or any(c.name == STEP_SECONDS for c in history.curves)
    sentence = summary(history, what_is_timed(scope.report.run))
    return section(
        "timeline", "Timeline", f'<p class="lead">{text(sentence)}</p>', _legend(history),
        _CONTROLS.format(no_steps="" if has_steps else " disabled"),
        f'<div class="chart with-script" id="timeline-chart"><canvas role="img" aria-label="Timeline. {text(sentence)}"></canvas></div>',
        '<p id="readout" class="with-script" aria-live="polite">'
        "Point at a mark to see what it is, drag to zoom, click to go to its finding.</p>",
        '<noscript><p class="quiet">The chart needs JavaScript; the table holds the same.</p></noscript>',
        _not_drawn(history, columns["numLeftOut"], columns["numDropped"]), _as_table(scope),
    )


def summary(history: History, timed: str = "run") -> str:
    """What the chart shows at a glance."""
    counts = _counts(history)
    happened = ", ".join(f"{counts[kind]:,} {_WORDS[kind][counts[kind] != 1]}" for kind in KINDS if counts[kind])
    verb = "took" if timed == "run" else "spans"
    length = f"The {timed} {verb} {duration(history.seconds)}" if history.seconds else f"How long the {timed} took is not known"
    steady = [p for p in history.processes if p.steady_time is not None]
    last = max(steady, key=lambda p: p.steady_time or 0.0, default=None)
    said = f"{length}: {happened}." if happened else f"{length}; nothing was compiled."
    if last is not None and last.steady_time is not None:
        at_step = {None: "", 0: ", before the first step was"}.get(last.steady_step, f", at step {last.steady_step}")
        who = f" of {last.name}, the last," if len(steady) > 1 else ""
        said += f" The last first-time compile{who} was over after {duration(last.steady_time)}{at_step}: steady state begins there."
    return said


def _counts(history: History) -> Counter[MomentKind]:
    """The backward of a compile has a mark of its own, and is no compile of its own."""
    return Counter(m.kind for m in history.moments if not m.is_backward)


def _legend(history: History) -> str:
    counts = _counts(history)
    seen = [(number, kind) for number, kind in enumerate(KINDS) if counts[kind]]
    kinds = "".join(f'<li><i class="kind k{number}"></i>{kind} <b>{counts[kind]:,}</b></li>' for number, kind in seen)
    line = '<li><i class="kind line"></i>step time</li>' if any(c.name == STEP_SECONDS for c in history.curves) else ""
    return f'<ul class="legend">{kinds}{line}</ul>'


def _not_drawn(history: History, num_left_out: int, num_dropped: int) -> str:
    said = []
    if num_left_out:
        said.append(f"{counted(num_left_out, 'mark')} of {len(history.moments):,} not drawn, to keep the page small.")
    if num_dropped:
        said.append(f"{counted(num_dropped, 'text')} beside marks left out, to keep the page small.")
    if len(history.processes) > MAX_LANES:
        hidden = len(history.processes) - MAX_LANES
        said.append(f"{hidden} of {len(history.processes)} processes not drawn; all are in the table of processes.")
    return note(" ".join(said)) if said else ""


def _as_table(scope: Scope) -> str:
    groups: dict[tuple[str, str, str], list[Moment]] = defaultdict(list)
    for m in scope.report.history.moments:
        groups[str(m.kind), m.label, m.fingerprint].append(m)
    if not groups:
        return ""
    rows = [_row(scope, *key, found) for key, found in list(groups.items())[:MAX_ROWS]]
    more = note(f"{len(groups) - MAX_ROWS} more rows not listed.") if len(groups) > MAX_ROWS else ""
    head = ["What", "Where", "Times", "First at", "Last at", "First step", "Last step", "Took", "Finding"]
    return f"<details><summary>The timeline as a table</summary>{table('Timeline', head, rows, numbers=range(2, 8))}{more}</details>"


def _row(scope: Scope, kind: str, label: str, fingerprint: str, found: list[Moment]) -> list[str]:
    steps = [m.step for m in found if m.step is not None]
    seconds = [m.seconds for m in found if m.seconds is not None]
    finding = scope.finding(fingerprint)
    return [
        text(kind), text(label), f"{len(found):,}", f"{min(m.time for m in found):.2f} s", f"{max(m.time for m in found):.2f} s",
        str(min(steps)) if steps else NOT_KNOWN, str(max(steps)) if steps else NOT_KNOWN,
        duration(sum(seconds)) if seconds else "", scope.link(fingerprint, text(finding.code)) if finding else "",
    ]
