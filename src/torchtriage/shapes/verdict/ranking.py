"""Ranks policies by their total time, with the certainty that the rounds so far allow."""

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Interval
from torchtriage.proof.statistics import levels, noise_of, paired_ratio, rounds_to_decide
from torchtriage.shapes.policies import by_simplicity
from torchtriage.shapes.runs.trial import Span, Trial

# A policy at most this far behind the best counts as equal to it: changing a program should gain more.
TOLERANCE = 0.03
# Half the width below which an interval is judged by its middle: a ratio exactly at the edge would never be decided.
NARROW = 0.01
# How far behind the best in a typical round a policy may be, while its interval does not show whether it is equal.
SEEMS_EQUAL = 0.05
# For a verdict. The noise is estimated from all policies, so two rounds are enough for large differences.
MIN_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Far:
    """When a policy is eliminated without an interval: `ratio` times the leader's total in `num_rounds` rounds."""

    ratio: float
    num_rounds: int


FAR_BEHIND = Far(ratio=1.5, num_rounds=2)
FAR_BEHIND_IN_TURNS = Far(ratio=1.25, num_rounds=1)     # runs that take turns vary by only 1 or 2 %, see turns.py


class Standing(enum.Enum):
    """A policy in comparison with the best one."""

    EQUAL = "behind by less than the tolerance"
    BEHIND = "behind by more"
    OPEN = "not decided yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The totals of every policy by round. `baseline` is the policy that a change must beat; empty if there is none."""

    totals: Mapping[str, Mapping[int, float]]
    baseline: str = ""
    far_behind: Far = FAR_BEHIND

    @property
    def leader(self) -> str:
        """The policy with the least total in a typical round."""
        typical = levels(self.totals)
        return min(self.totals, key=lambda name: typical.get(name, 0.0))

    def over(self, of: str, to: str) -> float:
        """The total of `of` divided by that of `to`, in a typical round."""
        typical = levels(self.totals)
        return typical[of] / typical[to] if of in typical and to in typical else 1.0

    def middle(self, name: str) -> float:
        """The observed total: the median over the rounds."""
        return statistics.median(self.totals[name].values())

    def ratio(self, of: str, to: str) -> Interval | None:
        return paired_ratio(self.totals[of], self.totals[to], noise_of(self.totals, paired=True))

    def is_far_behind(self, name: str) -> bool:
        """Whether a policy is eliminated without an interval.

        The baseline stays unless one round is enough proof, because a change must be measured against it.
        """
        if name == self.baseline and self.far_behind.num_rounds > 1:
            return False
        leader = self.totals[self.leader]
        rounds = self.totals[name].keys() & leader.keys()
        if not rounds:      # never in the same round: compared through shared opponents
            return self.far_behind.num_rounds == 1 and self.over(name, self.leader) > self.far_behind.ratio
        far = [n for n in rounds if self.totals[name][n] > self.far_behind.ratio * leader[n]]
        return len(far) >= self.far_behind.num_rounds and 2 * len(far) > len(rounds)

    def standing(self, name: str) -> Standing:
        """In comparison with the leader."""
        if self.is_far_behind(name):
            return Standing.BEHIND
        if name == self.leader:
            return Standing.EQUAL if len(self.totals[name]) >= MIN_ROUNDS else Standing.OPEN
        ratio = self._verdict(name, self.leader)
        if ratio is None or ratio.low is None or ratio.high is None:
            return Standing.OPEN
        low, high = _ends(ratio)
        if high <= 1 + TOLERANCE:
            return Standing.EQUAL
        return Standing.BEHIND if low > 1 + TOLERANCE else Standing.OPEN

    def beats_baseline(self, name: str) -> bool:
        """Whether the entire interval of the gain is above 1. True if there is no baseline to beat."""
        if name == self.baseline or self.baseline not in self.totals:
            return True
        gain = self.ratio(self.baseline, name)
        return gain is not None and gain.low is not None and gain.low > 1

    def may_be_faster(self, of: str, to: str) -> bool:
        """Whether `of` could still prove faster than `to` by more than the tolerance."""
        if of == to or self.is_far_behind(of):
            return False
        ratio = self._verdict(of, to)
        return ratio is None or ratio.low is None or _ends(ratio)[0] < 1 - TOLERANCE

    def _verdict(self, of: str, to: str) -> Interval | None:
        """The ratio, once there are enough common rounds for a verdict."""
        num_common = len(self.totals[of].keys() & self.totals[to].keys())
        return self.ratio(of, to) if num_common >= MIN_ROUNDS else None

    @property
    def preference(self) -> list[str]:
        """The simplest to set first; the baseline before all others."""
        return by_simplicity(list(self.totals))

    def settled(self) -> str:
        """The simplest policy that is as good as any other; empty while that is undecided."""
        name = next(name for name in self.preference if self.standing(name) is not Standing.BEHIND)
        is_open = self.standing(name) is Standing.OPEN or any(self.may_be_faster(other, name) for other in self.totals)
        return "" if is_open or not self.beats_baseline(name) else name

    def guess(self) -> str:
        """While it is undecided: the simplest policy that may be as good as any other.

        Empty unless that policy is clearly better than the baseline.
        """
        candidates = [name for name in self.preference if self.standing(name) is not Standing.BEHIND]
        name = next(name for name in candidates if self.over(name, self.leader) <= 1 + SEEMS_EQUAL)
        if self.baseline not in self.totals or name == self.baseline or len(self.totals[name]) < MIN_ROUNDS:
            return ""
        return name if self.beats_baseline(name) else ""

    def running(self) -> list[str]:
        """The policies about which another round could still reveal something."""
        simplest = next((name for name in self.preference if self.standing(name) is Standing.EQUAL), self.leader)
        simpler = self.preference[:self.preference.index(simplest)]
        undecided = {name for name in simpler if self.standing(name) is Standing.OPEN}
        names = {self.leader, simplest, *undecided}
        return [name for name in self.totals if name in names or self.may_be_faster(name, simplest)]

    def more_rounds(self) -> int | None:
        """The number of rounds that would decide it, at the spread so far; None if that is unreasonably many."""
        leader, needed, noise = self.totals[self.leader], [1], noise_of(self.totals, paired=True)
        for runs in (self.totals[name] for name in self.running()):
            common = len(runs.keys() & leader.keys())
            if common < MIN_ROUNDS:
                needed.append(MIN_ROUNDS - common)
            elif runs is not leader:
                rounds = rounds_to_decide(runs, leader, 1 + TOLERANCE, NARROW, noise)
                if rounds is None:
                    return None
                needed.append(rounds - common)
        return max(needed)


def _ends(ratio: Interval) -> tuple[float, float]:
    """Both ends of an interval; its middle twice if it is narrow."""
    low, high = ratio.low or ratio.middle, ratio.high or ratio.middle
    return (ratio.middle, ratio.middle) if math.log(high / low) <= 2 * NARROW else (low, high)


def ranked(
    trials: Mapping[str, Sequence[Trial]], span: Span, num_planned: int, baseline: str = "",
    far_behind: Far = FAR_BEHIND,
) -> Ranking:
    """The ranking of these policies by their totals for `num_planned` units."""
    totals = {name: {t.round: span.total(t, num_planned) for t in runs} for name, runs in trials.items() if runs}
    return Ranking(totals=totals, baseline=baseline, far_behind=far_behind)
