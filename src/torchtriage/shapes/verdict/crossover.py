"""From how many units on another policy is quicker in total."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Crossover
from torchtriage.shapes.runs.trial import Span, Trial
from torchtriage.shapes.verdict.statistics import paired_ratio

MAX_UNITS = 1_000_000_000   # farther away, a crossover is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Total seconds against units: what starting costs, and what each unit costs; both by round."""

    name: str
    startups: Mapping[int, float]
    rates: Mapping[int, float]

    @property
    def startup(self) -> float:
        return statistics.median(self.startups.values())

    @property
    def rate(self) -> float:
        return statistics.median(self.rates.values())

    def overtakes(self, other: "Line") -> bool:
        """Whether this policy surely starts dearer and surely goes on cheaper."""
        return _is_above(self.startups, other.startups) and _is_above(other.rates, self.rates)

    def meets(self, other: "Line") -> float:
        return (self.startup - other.startup) / (other.rate - self.rate)


def crossovers(trials: Mapping[str, Sequence[Trial]], span: Span) -> list[Crossover]:
    """The policies that lead one after the other as the run gets longer; one that goes on compiling has no line to follow."""
    lines = [
        Line(name=name, startups={t.round: span.startup(t) for t in runs}, rates={t.round: span.rate(t) for t in runs})
        for name, runs in trials.items() if runs and not any(span.compiles_late(t) for t in runs)
    ]
    if not lines:
        return []
    found: list[Crossover] = []
    now, units = min(lines, key=lambda line: line.startup + line.rate), 1.0
    while True:
        later = [(line.meets(now), line) for line in lines if line.overtakes(now)]
        later = [(at, line) for at, line in later if units < at <= MAX_UNITS]
        if not later:
            return found
        units, line = min(later, key=lambda pair: pair[0])
        found.append(Crossover(units=rounded(units), before=now.name, after=line.name))
        now = line


def rounded(units: float) -> int:
    """To two digits: the place of a crossover is an estimate."""
    step: int = 10 ** max(0, math.floor(math.log10(units)) - 1)
    return round(units / step) * step


def _is_above(of: Mapping[int, float], to: Mapping[int, float]) -> bool:
    if min(of.values()) <= 0 or min(to.values()) <= 0:
        return min(of.values()) > max(to.values()) and len(of) > 1      # a ratio says nothing about a start that costs nothing
    ratio = paired_ratio(of, to)
    return ratio is not None and ratio.low is not None and ratio.low > 1
