"""A proof as one HTML page: the verdict, both timelines on one axis, both loss curves in one chart; no script."""

import math
from collections.abc import Iterator, Sequence

from torchtriage.findings.proof.verdict import FindingMark, LossCurve, Proof, SideFacts
from torchtriage.reporters.html.markup import note, section, table, text
from torchtriage.reporters.html.page import policy, style_sheet
from torchtriage.reporters.proof.location import location_notes, location_sentence
from torchtriage.reporters.proof.sentences import (
    counts,
    headline,
    number_notes,
    numbers_sentence,
    reason_sentence,
    time_sentence,
)
from torchtriage.text import counted, duration

WIDTH, LANE, HEIGHT, LEFT, RIGHT = 860, 44, 240, 64, 12
NUM_TICKS = 5
_STYLE = """
.proof-svg { width: 100%; height: auto; max-width: 60rem; display: block; }
.proof-svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.proof-axis { stroke: currentColor; stroke-opacity: .35; fill: none; }
.proof-compile { fill: #8a6fd1; } .proof-recompile { fill: #d9822b; } .proof-break { fill: #cf3f3f; }
.proof-before { stroke: #cf3f3f; fill: none; stroke-width: 2; }
.proof-after { stroke: #2c7fb8; fill: none; stroke-width: 2; stroke-dasharray: 6 3; }
.proof-verdict { font-size: 1.3rem; } .proof-verdict b { text-transform: uppercase; }
"""


def render(proof: Proof) -> str:
    style = style_sheet() + _STYLE
    parts = [_verdict(proof), _findings(proof), _numbers(proof), _timeline(proof), _counts(proof), _notes(proof)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(style, "")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(proof.verdict)}: torchtriage verify</title>
<style>{style}</style>
</head>
<body>
<header><p class="brand">torchtriage verify</p>
<p class="ran"><span><b>{text(proof.before.label)}</b> against <b>{text(proof.after.label)}</b></span></p></header>
<main>
{chr(10).join(part for part in parts if part)}
</main>
<footer><p class="quiet">Made by torchtriage: one file that needs no network.</p></footer>
</body>
</html>
"""


def _verdict(proof: Proof) -> str:
    reasons = "".join(f"<li>{text(reason_sentence(reason))}</li>" for reason in proof.reasons[1:])
    return section(
        "verdict", "Verdict", f'<p class="proof-verdict"><b>{text(proof.verdict)}</b>: {text(headline(proof))}</p>',
        f"<ul>{reasons}</ul>" if reasons else "")


def _findings(proof: Proof) -> str:
    groups = (("fixed", proof.findings.fixed), ("new", proof.findings.new), ("unchanged", proof.findings.unchanged))
    rows = [_finding_row(name, mark) for name, marks in groups for mark in marks]
    if not rows:
        return section("findings", "Findings", note("Neither side has a finding."))
    return section("findings", "Findings", table("Findings", ("", "rule", "severity", "what", "where"), rows))


def _finding_row(name: str, mark: FindingMark) -> tuple[str, ...]:
    return tuple(text(value) for value in (name, mark.code, mark.severity.name, mark.title, mark.place))


def _numbers(proof: Proof) -> str:
    notes = [note(words) for words in number_notes(proof.numbers)]
    if proof.location is not None:
        notes += [note(location_sentence(proof.location)), *map(note, location_notes(proof.location))]
    lead = f'<p class="lead">{text(numbers_sentence(proof.numbers))}</p>'
    return section("numbers", "Numbers", lead, loss_chart(proof.numbers.before, proof.numbers.after), *notes)


def _counts(proof: Proof) -> str:
    rows = [(text(name), text(words)) for name, words in counts(proof.before, proof.after)]
    lead = f'<p class="lead">{text(time_sentence(proof.time))}</p>'
    return section("counts", "Time and counts", lead, table("Counts", ("what", "before → after"), rows))


def _notes(proof: Proof) -> str:
    lines = [*proof.notes, f"{counted(proof.num_runs, 'run')} in {duration(proof.seconds)}"]
    if proof.steps_limit:
        lines.insert(0, f"both sides were ended after {counted(proof.steps_limit, 'optimizer step')} (--steps)")
    return section("notes", "How it was measured", *(note(line) for line in lines))


def loss_chart(before: LossCurve, after: LossCurve) -> str:
    """Both curves in one chart; empty without two points."""
    finite = [value for curve in (before, after) for value in curve.values if math.isfinite(value)]
    steps = [step for curve in (before, after) for step in curve.steps]
    if len(finite) < 2 or min(steps) == max(steps):
        return ""
    low, high = min(finite), max(finite)
    span = high - low or 1.0

    def path(curve: LossCurve) -> str:
        pairs = zip(curve.steps, curve.values, strict=True)
        points = [f"{_x(step, min(steps), max(steps))},{round(HEIGHT - 30 - (value - low) / span * (HEIGHT - 50), 1)}"
                  for step, value in pairs if math.isfinite(value)]
        return " ".join(points)

    axis = [
        f'<path class="proof-axis" d="M{LEFT} 10V{HEIGHT - 30}H{WIDTH - RIGHT}"/>',
        f'<text x="4" y="24">{high:.4g}</text><text x="4" y="{HEIGHT - 32}">{low:.4g}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 10}">step {min(steps)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">step {max(steps)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="16" text-anchor="end">loss: before solid, after dashed</text>',
    ]
    lines = (f'<polyline class="proof-before" points="{path(before)}"/>'
             f'<polyline class="proof-after" points="{path(after)}"/>')
    return (f'<svg class="proof-svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="Losses of both sides by step">{"".join(axis)}{lines}</svg>')


def _timeline(proof: Proof) -> str:
    """Compiles, breaks and recompiles of both sides, on one axis of seconds."""
    sides = (("before", proof.before), ("after", proof.after))
    end = max((begin + seconds for _, side in sides for _, begin, seconds in side.moments), default=0.0)
    if end <= 0:
        return ""
    height = LANE * len(sides) + 30
    lanes = "".join(_lane(name, side, number, end) for number, (name, side) in enumerate(sides))
    ticks = "".join(_ticks(end, height))
    picture = (f'<svg class="proof-svg" viewBox="0 0 {WIDTH} {height}" role="img" '
               f'aria-label="Compiles, recompiles and graph breaks of both sides">{lanes}{ticks}</svg>')
    words = "Purple: compiling. Orange: a recompile. Red: a graph break. Seconds since the start of each process."
    return section("timeline", "Timeline", picture, note(words))


def _lane(name: str, side: SideFacts, number: int, end: float) -> str:
    top = number * LANE + 8
    marks = [f'<text x="4" y="{top + 18}">{name}</text>']
    for kind, begin, seconds in side.moments:
        x = _x(begin, 0.0, end)
        if kind == "compile":
            width = max(1.0, _x(begin + seconds, 0.0, end) - x)
            marks.append(f'<rect class="proof-compile" x="{x}" y="{top}" width="{width:.1f}" height="14"/>')
        else:
            style = "proof-break" if kind == "graph break" else "proof-recompile"
            marks.append(f'<rect class="{style}" x="{x}" y="{top + 16}" width="3" height="12"/>')
    return "".join(marks)


def _ticks(end: float, height: int) -> Iterator[str]:
    yield f'<path class="proof-axis" d="M{LEFT} {height - 22}H{WIDTH - RIGHT}"/>'
    places: Sequence[float] = [end * number / NUM_TICKS for number in range(NUM_TICKS + 1)]
    for second in places:
        anchor = "end" if second == end else "middle"
        yield f'<text x="{_x(second, 0.0, end)}" y="{height - 6}" text-anchor="{anchor}">{second:.3g} s</text>'


def _x(value: float, low: float, high: float) -> float:
    return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)
