"""Total seconds against units, one line per policy, as inline SVG without a script."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import PolicyResult, ShapeStudy, policy_label
from torchtriage.reporters.html.markup import text
from torchtriage.reporters.shape_text import crossover, is_estimated
from torchtriage.text import counted, duration, time_unit

HEIGHT, TOP, RIGHT, BOTTOM, LEFT = 260, 14, 30, 30, 58
SIZES = ("wide", 900), ("narrow", 350)      # the style sheet shows the one that fits; text in a scaled SVG would shrink
NUM_COLOURS = 6
FARTHEST = 10           # times the planned units: a crossover beyond that would flatten every line
HIGHEST = 4             # times the lowest total: a much slower policy would flatten the others too
NUM_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The total of a policy: `startup` seconds, then `rate` seconds per unit."""

    name: str
    startup: float
    rate: float
    is_average: bool = False    # it compiled until the end, so only its mean is known

    def at(self, num_units: float) -> float:
        return self.startup + self.rate * num_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """Maps units and seconds to coordinates in a picture of this width."""

    width: int
    most_units: float
    most_seconds: float

    def x(self, num_units: float) -> float:
        return round(LEFT + num_units / self.most_units * (self.width - LEFT - RIGHT), 1)

    def y(self, seconds: float) -> float:
        return round(HEIGHT - BOTTOM - seconds / self.most_seconds * (HEIGHT - TOP - BOTTOM), 1)


def totals(study: ShapeStudy) -> list[Total]:
    """The lines of the policies that have a total."""
    lines = []
    for p in study.policies:
        total = p.total_seconds.middle if p.total_seconds else math.nan
        if not p.failed and study.num_planned > 0 and 0 <= total < math.inf:
            lines.append(_line(p, total, study.num_planned))
    return lines


def _line(p: PolicyResult, total: float, num_planned: int) -> Total:
    rate = p.steady_seconds.middle if p.steady_seconds else math.nan
    if not p.still_compiling and 0 <= rate * num_planned <= total:
        return Total(name=p.name, startup=total - rate * num_planned, rate=rate)
    startup = max(0.0, min(total, p.first_call_seconds.middle)) if p.first_call_seconds else 0.0
    return Total(name=p.name, startup=startup, rate=(total - startup) / num_planned, is_average=True)


def chart(study: ShapeStudy) -> str:
    """The figure with its legend; empty if there are fewer than two policies to compare."""
    lines = totals(study)
    if len(lines) < 2:
        return ""
    crossings = [c for c in study.crossovers if 0 < c.units <= FARTHEST * study.num_planned]
    most_units = max(study.num_planned, *(1.25 * c.units for c in crossings), 1)
    ends = [line.at(most_units) for line in lines]
    most_seconds = 1.05 * max(end for end in ends if end <= HIGHEST * min(ends)) or 1.0
    is_cut = max(ends) > most_seconds
    names = {line.name: line for line in lines}
    dots = [(c.units, names[c.before].at(c.units)) for c in crossings if c.before in names]
    turns = "; ".join(crossover(study, c) for c in study.crossovers)
    label = f"Total seconds by number of {study.unit}s, one line per policy. {turns}"
    pictures = [
        _picture(kind, Plane(width=width, most_units=most_units, most_seconds=most_seconds), study, lines, dots, label)
        for kind, width in SIZES
    ]
    legend = "".join(
        f'<li><span class="kind line {_colour(n)}"></span>{text(_legend(line, study))}</li>'
        for n, line in enumerate(lines)
    )
    return (
        f'<figure class="chart totals"><figcaption>Total by number of {text(study.unit)}s '
        f'<span class="quiet">{text(_caption(study, is_cut))}</span></figcaption>'
        f'{"".join(pictures)}<ul class="legend">{legend}</ul></figure>'
    )


def _legend(line: Total, study: ShapeStudy) -> str:
    mean = " (a mean: it compiled until the end)" if line.is_average else ""
    return f"{policy_label(line.name)}: {duration(line.startup)} + {duration(line.rate)} per {study.unit}{mean}"


def _caption(study: ShapeStudy, is_cut: bool) -> str:
    source = "measured"
    if is_estimated(study):
        source = f"measured up to {counted(study.num_units, study.unit)}, estimated beyond"
    return f"{source}; policies that are not visible take at least {HIGHEST} times the fastest" if is_cut else source


def _picture(
    kind: str, plane: Plane, study: ShapeStudy, lines: Sequence[Total], dots: Sequence[tuple[float, float]],
    label: str,
) -> str:
    right, bottom = plane.width - RIGHT, HEIGHT - BOTTOM
    parts = []
    unit_seconds, unit = time_unit(plane.most_seconds)
    for number in _ticks(plane.most_seconds / unit_seconds, NUM_TICKS):
        y = plane.y(number * unit_seconds)
        tick = f"{number:,g} {unit}" if number else "0"
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{right}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{y + 4:g}">{tick}</text>')
    for number in _ticks(plane.most_units, plane.width // 110):
        parts.append(f'<text class="middle" x="{plane.x(number)}" y="{bottom + 18}">{number:,.12g}</text>')
    for num_units, limit in ((study.num_units, "measured"), (study.num_planned, "planned")):
        if 0 < num_units < plane.most_units and study.num_planned != study.num_units:
            x = plane.x(num_units)
            side, at = ("end", x - 4) if x > plane.width / 2 else ("start", x + 4)
            parts.append(f'<path class="limit" d="M{x} {TOP}V{bottom}"/>')
            parts.append(f'<text class="{side}" x="{at:g}" y="{TOP + 8}">{limit}</text>')
    for index, line in enumerate(lines):
        dash = " average" if line.is_average else ""
        if line.startup <= plane.most_seconds:
            parts.append(f'<path class="curve {_colour(index)}{dash}" d="{_stroke(line, plane)}"/>')
    for crossing, seconds in dots:
        parts.append(f'<circle class="crossing" cx="{plane.x(crossing)}" cy="{plane.y(seconds)}" r="5"/>')
    attributes = f'class="{kind}" role="img" aria-label="{text(label)}" viewBox="0 0 {plane.width} {HEIGHT}"'
    return f"<svg {attributes}>{''.join(parts)}</svg>"


def _stroke(line: Total, plane: Plane) -> str:
    """To the right edge, or to the point where the line leaves the top."""
    end = plane.most_units
    if line.at(end) > plane.most_seconds:
        end = (plane.most_seconds - line.startup) / line.rate
    return f"M{plane.x(0)} {plane.y(line.startup)}L{plane.x(end)} {plane.y(line.at(end))}"


def _ticks(most: float, number: int) -> list[float]:
    """About `number` round numbers, from 0 on."""
    rough = most / max(1, number)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
    return [k * step for k in range(int(most / step) + 1)]


def _colour(number: int) -> str:
    return f"l{number % NUM_COLOURS}"
