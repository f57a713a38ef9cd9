"""The time limits of a study, of each of its runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import BASELINE
from torchtriage.proof.budget import TimeLimit
from torchtriage.shapes.runs.trial import Trial, common_span
from torchtriage.shapes.verdict.race import Race
from torchtriage.shapes.verdict.ranking import MIN_ROUNDS

FIRST_SHARE = 0.25      # of the budget: the first run is stopped after it
WARM_UP_SHARE = 0.05    # of the budget: a first run below it only warms up the disk cache, and is repeated
SIZES_SHARE = 0.1       # of the budget, for one run that only records sizes
ENOUGH_UNITS = 20       # a run may always take 1.5 times what this many units of the baseline took
FAR_SHARE = 2.0         # times a complete baseline run: the limit of a run that takes turns
GRACE = 1.2             # times the time left: the limit of a round in turns, as stopping it would cut every run short
MIN_RUN_SECONDS = 10.0  # importing torch alone may take this long


@dataclass(slots=True, kw_only=True)
class Budget(TimeLimit):
    """The time that is left, and the limit of each kind of run."""

    def of_first_run(self) -> float:
        return max(MIN_RUN_SECONDS, FIRST_SHARE * self.seconds)

    def allows_warm_up(self, race: Race) -> bool:
        """Whether the first baseline run, which read torch and the compiler from a cold disk, is repeated."""
        return race.trials[BASELINE][0].seconds < WARM_UP_SHARE * self.seconds

    def of_run(self, race: Race, num_to_come: int) -> float:
        """A fair share of the time left, but enough for a few units."""
        share = self.left / max(1, num_to_come)
        return max(share, enough_seconds(race.trials[BASELINE][0]), MIN_RUN_SECONDS)

    def in_turns(self, race: Race, names: Sequence[str], num_to_come: int) -> float:
        """The limit of each run that takes turns.

        If complete runs fit into the time left, none is stopped before it is far behind.
        """
        baseline = race.trials[BASELINE][0]
        limit = self.of_run(race, num_to_come)
        if not baseline.was_stopped and len(names) * baseline.seconds < self.left:
            limit = max(limit, FAR_SHARE * baseline.seconds)
        return limit

    def of_round(self, race: Race, names: Sequence[str]) -> float:
        """For all runs of a round in turns together: the time left plus some grace, but enough for a few units each."""
        one_run = max(enough_seconds(race.trials[BASELINE][0]), MIN_RUN_SECONDS)
        return max(GRACE * self.left, len(names) * one_run)

    def of_sizes_run(self, race: Race) -> float:
        """For a run that only records sizes: it is faster than a baseline run, and part of a long one is enough."""
        baseline = race.trials[BASELINE][0]
        share = min(2 * baseline.seconds, SIZES_SHARE * self.seconds)
        return max(share, enough_seconds(baseline), MIN_RUN_SECONDS)

    def needed(self, baseline: Trial, num_policies: int) -> float:
        """The budget for a run that records sizes and the rounds of a first verdict, estimated from the first run."""
        one_run = max(enough_seconds(baseline), MIN_RUN_SECONDS)
        if not baseline.was_stopped:
            one_run = min(one_run, baseline.seconds)
        return self.spent + one_run * (1 + MIN_ROUNDS * num_policies)

    def fits(self, race: Race, names: list[str], number: int) -> bool:
        """Whether another round is likely to end in time; the first one starts as long as any time is left."""
        needed = 0.9 * race.seconds_of(names) if number > 1 else 0.0
        return self.left > needed


def enough_seconds(baseline: Trial) -> float:
    """The startup of a baseline run plus 1.5 times its first few units."""
    span = common_span([baseline])
    units = span.num_units
    outside = baseline.seconds - span.total(baseline, units)
    return outside + 1.5 * span.total(baseline, min(units, ENOUGH_UNITS))


def num_runs_to_come(num_policies: int, number: int, done: int) -> int:
    """The runs that remain until the first possible verdict."""
    return max(1, num_policies * max(1, MIN_ROUNDS - number + 1) - done)
