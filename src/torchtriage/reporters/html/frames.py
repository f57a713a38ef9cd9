"""Each compiled frame: the chain of its graph pieces and the breaks between them, and its compiles one by one."""

from collections.abc import Sequence

from torchtriage.findings.history import CompileEntry, FrameHistory, Link
from torchtriage.findings.report import Report
from torchtriage.reporters.html.markup import Scope, note, section, table, text
from torchtriage.text import counted, duration

# A page must stay small enough to send: 300 frames of 8 compiles, the default limit, are listed in full.
MAX_FRAMES = 300
MAX_COMPILES = 2400     # of all frames
MAX_LINKS = 60          # of one chain
MAX_COLUMNS = 5         # guarded values beside each other
MAX_GUARDS = 4          # of one compile, newest first; the first is shown, the others fold
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
    return section("frames", "Compiled frames", *blocks, note(f"{counted(more, 'more frame')} not listed.") if more > 0 else "")


def why_there_is_nothing(report: Report) -> str:
    """Why a report has no history, by where it comes from."""
    return {
        "log": "This log does not tell when things happened; a recording or a trace does.",
        "watch": "watch() keeps findings, not the course of the run; torchtriage run keeps both.",
    }.get(str(report.run.get("origin")), "The course of the run was not kept.")


def _frame(scope: Scope, frame: FrameHistory, compiles: Sequence[CompileEntry]) -> str:
    processes = scope.report.history.processes
    num_compiles = max(frame.num_compiles, len(frame.compiles))
    facts = [
        counted(num_compiles, "compile"), "" if frame.compile_seconds is None else f"{duration(frame.compile_seconds)} compiling",
        counted(sum(link.is_break for link in frame.chain), "break") if frame.chain else "",
        processes[frame.process].name if len(processes) > 1 and frame.process < len(processes) else "",
    ]
    limit = '<span class="badge P1">at its limit</span>' if frame.is_at_limit else ""
    left = num_compiles - len(compiles)
    parts = [
        _chain(scope, frame.chain), _compiles(frame, compiles, has_times=scope.report.history.start is not None),
        note(f"{counted(left, 'more compile')} not listed.") if left else "", _findings(scope, frame.fingerprints),
    ]
    return (
        f'<details class="frame"><summary><h3>{text(frame.name)}</h3>{limit}'
        f'<span class="cost">{text(", ".join(f for f in facts if f))}</span>'
        f'<span class="place">{scope.place(frame.location)}</span></summary>\n<div class="inside">{"".join(parts)}</div></details>'
    )


def _findings(scope: Scope, fingerprints: Sequence[str]) -> str:
    found = [(key, f) for key in fingerprints if (f := scope.finding(key)) is not None]
    links = "".join(f"<li>{scope.link(key, f'{text(f.code)} {text(f.title)}')}</li>" for key, f in found)
    return f"<h4>Findings here</h4><ul>{links}</ul>" if links else ""


def _chain(scope: Scope, chain: Sequence[Link]) -> str:
    """The pieces in order, each break between two of them."""
    if not chain:
        return ""
    shown = "".join(_link(scope, link) for link in chain[:MAX_LINKS])
    more = f'<li class="piece quiet">{len(chain) - MAX_LINKS} more</li>' if len(chain) > MAX_LINKS else ""
    return f'<h4>Graph pieces and the breaks between them</h4><ol class="chain">{shown}{more}</ol>'


def _link(scope: Scope, link: Link) -> str:
    label, detail = text(link.label), f"<small>{_cut(link.detail)}</small>" if link.detail else ""
    if link.is_break:
        return f'<li class="break">{scope.link(link.fingerprint, label)}{detail}</li>'
    place = scope.path(link.location) if link.location.line else ""
    facts = [place, link.compile_id, "" if link.num_ops is None else counted(link.num_ops, "op")]
    return f'<li class="piece"><b>{label}</b><small>{text(" · ".join(fact for fact in facts if fact))}</small>{detail}</li>'


def _compiles(frame: FrameHistory, compiles: Sequence[CompileEntry], has_times: bool) -> str:
    if not compiles:
        return ""
    changing = changing_sources(frame.compiles)
    columns = changing[:MAX_COLUMNS]
    names = (f"<code>{text(name)}</code>" for name in columns)
    head = ["Compile", "Piece", "Step", "At", "Took", "Ops", "Guards", *names, "What made it compile"]
    rows = []
    before: dict[str, str] = {}
    for compile_ in compiles:
        values = dict(compile_.values)
        cells = [_value(values.get(name), before.get(name)) for name in columns]
        before |= values
        rows.append([
            f"<code>{text(compile_.compile_id)}</code>", "start" if compile_.resumed_at is None else f"line&nbsp;{compile_.resumed_at}",
            _or_dash(compile_.step), f"{compile_.time:.2f} s" if has_times else _or_dash(None),
            _took(compile_), _or_dash(compile_.num_ops), _or_dash(compile_.num_guards), *cells, _why(compile_),
        ])
    hidden = len(changing) - len(columns)
    more = note(f"{counted(hidden, 'more value')} changed between compiles.") if hidden > 0 else ""
    return "<h4>Compiles</h4>" + table(f"Compiles of {frame.name}", head, rows, numbers=range(2, 7)) + more


def changing_sources(compiles: Sequence[CompileEntry]) -> list[str]:
    """The guarded sources whose value was not the same at every compile, in the order they appear."""
    seen: dict[str, set[str]] = {}
    for compile_ in compiles:
        for name, value in compile_.values:
            seen.setdefault(name, set()).add(value)
    return [name for name, values in seen.items() if len(values) > 1]


def _took(compile_: CompileEntry) -> str:
    backward = f" + {duration(compile_.backward_seconds)} backward" if compile_.backward_seconds is not None else ""
    return _or_dash(None if compile_.seconds is None else duration(compile_.seconds)) + backward


def _value(value: str | None, before: str | None) -> str:
    if value is None:
        return ""
    return f"<b>{_cut(value)}</b>" if before is not None and value != before else _cut(value)


def _why(compile_: CompileEntry) -> str:
    guards = [f"<code>{_cut(guard)}</code>" for guard in compile_.guards_failed[:MAX_GUARDS]]
    said = guards[0] if guards else '<span class="quiet">first compile</span>'
    if len(guards) > 1:
        number = len(compile_.guards_failed) - 1
        said += f"<details><summary>{counted(number, 'older version')} failed too</summary>{'<br>'.join(guards[1:])}</details>"
    return said + (f'<br><span class="bad">no code: {_cut(compile_.failed)}</span>' if compile_.failed else "")


def _cut(value: str) -> str:
    return text(value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + " ...")


def _or_dash(value: object) -> str:
    return '<span class="quiet">–</span>' if value is None else text(value)
