"""Which policy needs least time in total, and whether the rounds so far are enough to say so."""

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Interval
from torchtriage.shapes.policies import by_simplicity
from torchtriage.shapes.runs.trial import Span, Trial
from torchtriage.shapes.verdict.statistics import levels, noise_of, paired_ratio, rounds_to_tell

TOLERANCE = 0.03        # a policy that is not farther behind the best counts as equal to it: a change of the program should bring more
NARROW = 0.01           # half the width of an interval that is told by its middle: what lies at the edge would never be settled
SEEMS_EQUAL = 0.05      # behind the best in a usual round, that a policy may be while its interval leaves open whether it is equal
MIN_ROUNDS = 2          # for a verdict: the noise is learned from all policies, so two are enough where much lies between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Far:
    """When a policy is out of the race without an interval: so many times the leader's total in so many rounds."""

    ratio: float
    num_rounds: int


FAR_BEHIND = Far(ratio=1.5, num_rounds=2)
FAR_BEHIND_IN_TURNS = Far(ratio=1.25, num_rounds=1)     # runs that take turns differ by 1 or 2 % by chance, see turns.py


class Standing(enum.Enum):
    """What is known of a policy and the best one."""

    EQUAL = "behind by less than the tolerance"
    BEHIND = "behind by more"
    OPEN = "not told yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The totals of every policy by round; `baseline` is the policy that a change must beat, empty if there is none."""

    totals: Mapping[str, Mapping[int, float]]
    baseline: str = ""
    far_behind: Far = FAR_BEHIND

    @property
    def leader(self) -> str:
        """The policy with the least total in a usual round."""
        found = levels(self.totals)
        return min(self.totals, key=lambda name: found.get(name, 0.0))

    def over(self, of: str, to: str) -> float:
        """How many times the total of `to` the total of `of` is in a usual round."""
        found = levels(self.totals)
        return found[of] / found[to] if of in found and to in found else 1.0

    def middle(self, name: str) -> float:
        """The total as it was observed: a median."""
        return statistics.median(self.totals[name].values())

    def ratio(self, of: str, to: str) -> Interval | None:
        return paired_ratio(self.totals[of], self.totals[to], noise_of(self.totals, paired=True))

    def is_far_behind(self, name: str) -> bool:
        """Out of the race without an interval. The baseline stays where one round proves nothing: a change must be measured against it."""
        if name == self.baseline and self.far_behind.num_rounds > 1:
            return False
        leader = self.totals[self.leader]
        rounds = self.totals[name].keys() & leader.keys()
        if not rounds:      # they met only others
            return self.far_behind.num_rounds == 1 and self.over(name, self.leader) > self.far_behind.ratio
        far = [n for n in rounds if self.totals[name][n] > self.far_behind.ratio * leader[n]]
        return len(far) >= self.far_behind.num_rounds and 2 * len(far) > len(rounds)

    def standing(self, name: str) -> Standing:
        """To the leader."""
        if self.is_far_behind(name):
            return Standing.BEHIND
        if name == self.leader:
            return Standing.EQUAL if len(self.totals[name]) >= MIN_ROUNDS else Standing.OPEN
        ratio = self._verdict(name, self.leader)
        if ratio is None or ratio.low is None or ratio.high is None:
            return Standing.OPEN
        low, high = _ends(ratio)
        return Standing.EQUAL if high <= 1 + TOLERANCE else Standing.BEHIND if low > 1 + TOLERANCE else Standing.OPEN

    def beats_baseline(self, name: str) -> bool:
        """Whether the whole interval of what a change gains is above 1; nothing to beat is beaten."""
        if name == self.baseline or self.baseline not in self.totals:
            return True
        gain = self.ratio(self.baseline, name)
        return gain is not None and gain.low is not None and gain.low > 1

    def may_be_quicker(self, of: str, to: str) -> bool:
        """Whether `of` could still turn out to need less than `to` by more than the tolerance."""
        ratio = self._verdict(of, to)
        return of != to and not self.is_far_behind(of) and (ratio is None or ratio.low is None or _ends(ratio)[0] < 1 - TOLERANCE)

    def _verdict(self, of: str, to: str) -> Interval | None:
        """The ratio, once there are enough rounds to go by it."""
        return self.ratio(of, to) if len(self.totals[of].keys() & self.totals[to].keys()) >= MIN_ROUNDS else None

    @property
    def preference(self) -> list[str]:
        """The simplest to set first, as written before all."""
        return by_simplicity(list(self.totals))

    def settled(self) -> str:
        """The simplest policy that is as good as any; empty as long as that is open."""
        name = next(name for name in self.preference if self.standing(name) is not Standing.BEHIND)
        is_open = self.standing(name) is Standing.OPEN or any(self.may_be_quicker(other, name) for other in self.totals)
        return "" if is_open or not self.beats_baseline(name) else name

    def guess(self) -> str:
        """Where it is open: the simplest policy that may be as good as any, if it is surely better than the baseline; else empty."""
        open_names = [name for name in self.preference if self.standing(name) is not Standing.BEHIND]
        name = next(name for name in open_names if self.over(name, self.leader) <= 1 + SEEMS_EQUAL)
        if self.baseline not in self.totals or name == self.baseline or len(self.totals[name]) < MIN_ROUNDS:
            return ""
        return name if self.beats_baseline(name) else ""

    def running(self) -> list[str]:
        """The policies that another round could still tell something about."""
        simplest = next((name for name in self.preference if self.standing(name) is Standing.EQUAL), self.leader)
        simpler = self.preference[:self.preference.index(simplest)]
        found = {self.leader, simplest, *(name for name in simpler if self.standing(name) is Standing.OPEN)}
        return [name for name in self.totals if name in found or self.may_be_quicker(name, simplest)]

    def more_rounds(self) -> int | None:
        """How many more would settle it, at the spread seen so far; None if it would take more than anybody waits for."""
        leader, needed, noise = self.totals[self.leader], [1], noise_of(self.totals, paired=True)
        for runs in (self.totals[name] for name in self.running()):
            common = len(runs.keys() & leader.keys())
            if common < MIN_ROUNDS:
                needed.append(MIN_ROUNDS - common)
            elif runs is not leader:
                rounds = rounds_to_tell(runs, leader, 1 + TOLERANCE, NARROW, noise)
                if rounds is None:
                    return None
                needed.append(rounds - common)
        return max(needed)


def _ends(ratio: Interval) -> tuple[float, float]:
    """Both ends of an interval, or its middle if it is narrow."""
    low, high = ratio.low or ratio.middle, ratio.high or ratio.middle
    return (ratio.middle, ratio.middle) if math.log(high / low) <= 2 * NARROW else (low, high)


def ranked(
    trials: Mapping[str, Sequence[Trial]], span: Span, num_planned: int, baseline: str = "", far_behind: Far = FAR_BEHIND,
) -> Ranking:
    """The ranking of these policies by their totals for so many units."""
    totals = {name: {t.round: span.total(t, num_planned) for t in runs} for name, runs in trials.items() if runs}
    return Ranking(totals=totals, baseline=baseline, far_behind=far_behind)
