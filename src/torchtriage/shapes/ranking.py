"""Which policy needs least time in total, and whether the rounds so far are enough to say so."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Interval
from torchtriage.shapes.statistics import levels, noise_of, paired_ratio, rounds_to_settle
from torchtriage.shapes.trials import Span, Trial

TOLERANCE = 0.03        # policies that lie closer together count as equal: a change of the program should bring more
MIN_ROUNDS = 2          # for a verdict: the noise is learned from all policies, so two are enough where much lies between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Far:
    """When a policy is out of the race without an interval: so many times the leader's total in so many rounds."""

    ratio: float
    num_rounds: int


FAR_BEHIND = Far(ratio=1.5, num_rounds=2)
FAR_BEHIND_IN_TURNS = Far(ratio=1.25, num_rounds=1)     # runs that take turns differ by 1 or 2 % by chance, see turns.py


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
        far = [n for n in rounds if self.totals[name][n] > self.far_behind.ratio * leader[n]]
        return len(far) >= self.far_behind.num_rounds and 2 * len(far) > len(rounds)

    def is_slower(self, of: str, to: str, by: float = 0.0) -> bool:
        """Whether the whole interval of `of` / `to` is above 1, or above 1 + `by`."""
        ratio = self._verdict(of, to)
        return ratio is not None and ratio.low is not None and ratio.low > 1 + by

    def may_be_quicker(self, of: str, to: str) -> bool:
        """Whether `of` could still turn out to need less than `to` by more than the tolerance."""
        ratio = self._verdict(of, to)
        return not self.is_far_behind(of) and (ratio is None or ratio.low is None or ratio.low < 1 - TOLERANCE)

    def _verdict(self, of: str, to: str) -> Interval | None:
        """The ratio, once there are enough rounds to go by it."""
        return self.ratio(of, to) if len(self.totals[of].keys() & self.totals[to].keys()) >= MIN_ROUNDS else None

    def beats_baseline(self, name: str) -> bool:
        """Of a policy that is near the leader."""
        if name == self.baseline or self.baseline not in self.totals:
            return True
        return self.is_far_behind(self.baseline) or self.is_slower(self.baseline, name)

    def is_best(self, name: str) -> bool:
        """Whether no other policy can be better by more than the tolerance, and this one is surely no worse than the baseline."""
        return self.beats_baseline(name) and not any(self.may_be_quicker(other, name) for other in self.totals if other != name)

    def settled(self, preference: Sequence[str]) -> str:
        """The first of these names, the simplest first, that is as good as any; empty if no policy is shown to be."""
        known = [name for name in preference if len(self.totals.get(name, ())) >= MIN_ROUNDS]
        return next((name for name in known if not self.is_far_behind(name) and self.is_best(name)), "")

    def running(self) -> list[str]:
        """The policies that another round could still tell something about."""
        leader = self.leader
        return [name for name in self.totals if name == leader or not (self.is_far_behind(name) or self.is_slower(name, leader))]

    def rounds_needed(self) -> int | None:
        """How many rounds in all would settle it, at the spread seen so far; None if that cannot be told."""
        leader, needed = self.leader, [MIN_ROUNDS]
        pairs = [(name, leader) for name in self.running() if name != leader]
        if self.baseline in self.totals and leader != self.baseline:
            pairs.append((leader, self.baseline))
        for of, to in pairs:
            rounds = rounds_to_settle(self.totals[of], self.totals[to], TOLERANCE, noise_of(self.totals, paired=True))
            if rounds is None:
                return None
            needed.append(rounds)
        return max(needed)


def ranked(
    trials: Mapping[str, Sequence[Trial]], span: Span, num_planned: int, baseline: str = "", far_behind: Far = FAR_BEHIND,
) -> Ranking:
    """The ranking of these policies by their totals for so many units."""
    totals = {name: {t.round: span.total(t, num_planned) for t in runs} for name, runs in trials.items() if runs}
    return Ranking(totals=totals, baseline=baseline, far_behind=far_behind)
