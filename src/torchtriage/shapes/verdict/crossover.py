"""The run lengths at which another policy becomes the fastest in total."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Crossover
from torchtriage.proof.statistics import paired_ratio
from torchtriage.shapes.runs.trial import Span, Trial

MAX_UNITS = 1_000_000_000   # a crossover beyond this is not reported


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """Total seconds as a straight line over the units: the cost of starting and the cost per unit, both by round."""

    name: str
    startups: Mapping[int, float]
    rates: Mapping[int, float]

    @property
    def startup(self) -> float:
        return statistics.median(self.startups.values())

    @property
    def rate(self) -> float:
        return statistics.median(self.rates.values())

    def overtakes(self, other: "CostLine") -> bool:
        """Whether this policy certainly costs more to start and certainly less per unit."""
        return _is_above(self.startups, other.startups) and _is_above(other.rates, self.rates)

    def meets(self, other: "CostLine") -> float:
        return (self.startup - other.startup) / (other.rate - self.rate)


def crossovers(trials: Mapping[str, Sequence[Trial]], span: Span) -> list[Crossover]:
    """The policies that lead one after the other as the run gets longer.

    A policy that keeps compiling has no constant cost per unit, so it is left out.
    """
    lines = []
    for name, runs in trials.items():
        if runs and not any(span.compiles_late(t) for t in runs):
            startups, rates = {t.round: span.startup(t) for t in runs}, {t.round: span.rate(t) for t in runs}
            lines.append(CostLine(name=name, startups=startups, rates=rates))
    if not lines:
        return []
    turns: list[Crossover] = []
    leader, units = min(lines, key=lambda line: line.startup + line.rate), 1.0
    while True:
        meetings = [(line.meets(leader), line) for line in lines if line.overtakes(leader)]
        meetings = [(at, line) for at, line in meetings if units < at <= MAX_UNITS]
        if not meetings:
            return turns
        units, line = min(meetings, key=lambda pair: pair[0])
        turns.append(Crossover(units=rounded(units), before=leader.name, after=line.name))
        leader = line


def rounded(units: float) -> int:
    """To two digits, since the place of a crossover is an estimate."""
    step: int = 10 ** max(0, math.floor(math.log10(units)) - 1)
    return round(units / step) * step


def _is_above(of: Mapping[int, float], to: Mapping[int, float]) -> bool:
    if min(of.values()) <= 0 or min(to.values()) <= 0:      # a startup of zero has no ratio
        return min(of.values()) > max(to.values()) and len(of) > 1
    ratio = paired_ratio(of, to)
    return ratio is not None and ratio.low is not None and ratio.low > 1
