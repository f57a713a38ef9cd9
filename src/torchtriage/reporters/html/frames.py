"""The compiled frames, each as a chain of graph pieces with a table of its compiles."""

from collections.abc import Sequence

from torchtriage.findings.history import CompileEntry, FrameHistory, Link
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import Scope, note, section, table, text
from torchtriage.text import counted, duration

# A page must stay small enough to send: 300 frames of 8 compiles, the default limit, are listed in full.
MAX_FRAMES = 300
MAX_COMPILES = 2400     # over all frames
MAX_LINKS = 60          # per chain
MAX_COLUMNS = 5         # of guarded values
MAX_GUARDS = 4          # per compile, newest first; all but the first are folded
MAX_TEXT = 240


def frames_section(scope: Scope) -> str:
    frames = scope.report.history.frames
    if not frames:
        why = "No frame was compiled." if scope.report.history.processes else why_there_is_nothing(scope.report)
        return section("frames", "Compiled frames", note(why))
    left = MAX_COMPILES
    blocks = []
    for frame in frames[:MAX_FRAMES]:
        shown = frame.compiles[:left]
        left -= len(shown)
        blocks.append(_frame(scope, frame, shown))
    more = len(frames) - MAX_FRAMES
    if more > 0:
        blocks.append(note(f"{counted(more, 'more frame')} not listed."))
    return section("frames", "Compiled frames", *blocks)


def why_there_is_nothing(report: Report) -> str:
    """Why a report from this source has no history."""
    return {
        "log": "This log does not contain the times of events; a recording or a trace does.",
        "watch": "watch() records findings, not the timeline of the run; torchtriage run records both.",
    }.get(str(report.run.get("origin")), "The timeline of the run was not recorded.")


def _frame(scope: Scope, frame: FrameHistory, compiles: Sequence[CompileEntry]) -> str:
    processes = scope.report.history.processes
    num_compiles = max(frame.num_compiles, len(frame.compiles))
    facts = [counted(num_compiles, "compile")]
    if frame.compile_seconds is not None:
        facts.append(f"{duration(frame.compile_seconds)} compiling")
    if frame.chain:
        facts.append(counted(sum(link.is_break for link in frame.chain), "break"))
    if len(processes) > 1 and frame.process < len(processes):
        facts.append(processes[frame.process].name)
    limit = '<span class="badge P1">at its limit</span>' if frame.is_at_limit else ""
    left = num_compiles - len(compiles)
    parts = [
        _chain(scope, frame.chain),
        _compiles(frame, compiles, has_times=scope.report.history.start is not None),
        note(f"{counted(left, 'more compile')} not listed.") if left else "",
        _findings(scope, frame.fingerprints),
    ]
    return (
        f'<details class="frame"><summary><h3>{text(frame.name)}</h3>{limit}'
        f'<span class="cost">{text(", ".join(fact for fact in facts if fact))}</span>'
        f'<span class="place">{scope.place(frame.location)}</span></summary>\n'
        f'<div class="inside">{"".join(parts)}</div></details>'
    )


def _findings(scope: Scope, fingerprints: Sequence[str]) -> str:
    links = []
    for fingerprint in fingerprints:
        finding = scope.finding(fingerprint)
        if finding is not None:
            label = f"{text(finding.code)} {text(finding.title)}"
            links.append(f"<li>{scope.link(fingerprint, label)}</li>")
    return f"<h4>Findings here</h4><ul>{''.join(links)}</ul>" if links else ""


def _chain(scope: Scope, chain: Sequence[Link]) -> str:
    """The pieces in order, with the breaks between them."""
    if not chain:
        return ""
    links = [_link(scope, link) for link in chain[:MAX_LINKS]]
    if len(chain) > MAX_LINKS:
        links.append(f'<li class="piece quiet">{len(chain) - MAX_LINKS} more</li>')
    return f'<h4>Graph pieces and the breaks between them</h4><ol class="chain">{"".join(links)}</ol>'


def _link(scope: Scope, link: Link) -> str:
    label, detail = text(link.label), f"<small>{_cut(link.detail)}</small>" if link.detail else ""
    if link.is_break:
        return f'<li class="break">{scope.link(link.fingerprint, label)}{detail}</li>'
    place = scope.path(link.location) if link.location.line else ""
    facts = [place, link.compile_id, "" if link.num_ops is None else counted(link.num_ops, "op")]
    shown = text(" · ".join(fact for fact in facts if fact))
    return f'<li class="piece"><b>{label}</b><small>{shown}</small>{detail}</li>'


def _compiles(frame: FrameHistory, compiles: Sequence[CompileEntry], has_times: bool) -> str:
    if not compiles:
        return ""
    changing = changing_sources(frame.compiles)
    columns = changing[:MAX_COLUMNS]
    names = (f"<code>{text(name)}</code>" for name in columns)
    head = ["Compile", "Piece", "Step", "At", "Took", "Ops", "Guards", *names, "Reason"]
    rows = []
    before: dict[str, str] = {}
    for compile_ in compiles:
        values = dict(compile_.values)
        cells = [_value(values.get(name), before.get(name)) for name in columns]
        before |= values
        rows.append([
            f"<code>{text(compile_.compile_id)}</code>",
            "start" if compile_.resumed_at is None else f"line&nbsp;{compile_.resumed_at}",
            _or_dash(compile_.step),
            f"{compile_.time:.2f} s" if has_times else _or_dash(None),
            _took(compile_),
            _or_dash(compile_.num_ops),
            _or_dash(compile_.num_guards),
            *cells,
            _reason(compile_),
        ])
    hidden = len(changing) - len(columns)
    more = note(f"{counted(hidden, 'more value')} changed between compiles.") if hidden > 0 else ""
    return "<h4>Compiles</h4>" + table(f"Compiles of {frame.name}", head, rows, numbers=range(2, 7)) + more


def changing_sources(compiles: Sequence[CompileEntry]) -> list[str]:
    """The guarded sources whose value differs between compiles, in the order in which they appear."""
    values_by_name: dict[str, set[str]] = {}
    for compile_ in compiles:
        for name, value in compile_.values:
            values_by_name.setdefault(name, set()).add(value)
    return [name for name, values in values_by_name.items() if len(values) > 1]


def _took(compile_: CompileEntry) -> str:
    backward = f" + {duration(compile_.backward_seconds)} backward" if compile_.backward_seconds is not None else ""
    return _or_dash(None if compile_.seconds is None else duration(compile_.seconds)) + backward


def _value(value: str | None, before: str | None) -> str:
    if value is None:
        return ""
    return f"<b>{_cut(value)}</b>" if before is not None and value != before else _cut(value)


def _reason(compile_: CompileEntry) -> str:
    """The guards that failed before the compile, and why it produced no code if it failed."""
    guards = [f"<code>{_cut(guard)}</code>" for guard in compile_.guards_failed[:MAX_GUARDS]]
    reason = guards[0] if guards else '<span class="quiet">first compile</span>'
    if len(guards) > 1:
        summary = f"{counted(compile_.num_guards_failed - 1, 'older version')} failed too"
        reason += f"<details><summary>{summary}</summary>{'<br>'.join(guards[1:])}</details>"
    if compile_.failed:
        reason += f'<br><span class="bad">no code: {_cut(compile_.failed)}</span>'
    return reason


def _cut(value: str) -> str:
    return text(value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + " ...")


def _or_dash(value: object) -> str:
    return '<span class="quiet">–</span>' if value is None else text(value)
