"""How long measuring may take: of a study as a whole, and of each run."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchtriage.errors import CommandError
from torchtriage.findings.shape_study import BASELINE
from torchtriage.shapes.runs.trial import Trial, common_span
from torchtriage.shapes.verdict.race import Race
from torchtriage.shapes.verdict.ranking import MIN_ROUNDS

FIRST_SHARE = 0.25      # of the budget, that the first run may take before it is stopped
WARM_UP_SHARE = 0.05    # of the budget, that a first run may take to serve as a mere warm-up
LOOK_SHARE = 0.1        # of the budget, for one run that only looks at sizes
ENOUGH_UNITS = 20       # a run may always take the time that so many units took as written, and half as much again
FAR_SHARE = 2.0         # of the time of a whole run as written, that another may take in turns
GRACE = 1.2             # of the time left, that a round in turns may take: what was measured in it would be cut short for all
MIN_RUN_SECONDS = 10.0  # importing torch alone may take as long
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")


def parse_duration(text: str) -> float:
    """90, 90s, 10m or 1.5h, in seconds."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    if seconds <= 0:
        raise CommandError(f"--budget {text} is no duration; give seconds, minutes or hours, such as 90s, 10m or 1h")
    return seconds


@dataclass(slots=True, kw_only=True)
class Budget:
    """The time that is left, and what of it a run may take."""

    seconds: float
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)

    def of_first_run(self) -> float:
        return max(MIN_RUN_SECONDS, FIRST_SHARE * self.seconds)

    def allows_warm_up(self, race: Race) -> bool:
        """Whether the first run as written, which read torch and the compiler from a cold disk, is run again to be compared."""
        return race.trials[BASELINE][0].seconds < WARM_UP_SHARE * self.seconds

    def of_run(self, race: Race, num_to_come: int) -> float:
        """A fair share of what is left, but enough for a few units."""
        return max(self.left / max(1, num_to_come), enough_seconds(race.trials[BASELINE][0]), MIN_RUN_SECONDS)

    def in_turns(self, race: Race, names: Sequence[str], num_to_come: int) -> float:
        """The limit of each of the runs that take turns: if they fit into the time left, none is cut short before it is far behind."""
        alone = race.trials[BASELINE][0]
        is_whole = not alone.was_stopped and len(names) * alone.seconds < self.left
        return max(self.of_run(race, num_to_come), FAR_SHARE * alone.seconds if is_whole else 0.0)

    def of_round(self, race: Race, names: Sequence[str]) -> float:
        """For all runs of a round in turns together: what is left, with some grace, but enough for a few units of each."""
        return max(GRACE * self.left, len(names) * max(enough_seconds(race.trials[BASELINE][0]), MIN_RUN_SECONDS))

    def of_look(self, race: Race) -> float:
        """For a run that only looks at sizes: it is over sooner than one as written, and a part of a long one will do."""
        written = race.trials[BASELINE][0]
        return max(min(2 * written.seconds, LOOK_SHARE * self.seconds), enough_seconds(written), MIN_RUN_SECONDS)

    def fits(self, race: Race, names: list[str], number: int) -> bool:
        """Whether another round is likely to end in time; the first one is begun while anything is left."""
        return self.left > (0.9 * race.seconds_of(names) if number > 1 else 0.0)


def enough_seconds(written: Trial) -> float:
    """For a few units of a run as written, from its start on, and half as much again."""
    span = common_span([written])
    units = span.num_units
    outside = written.seconds - span.total(written, units)
    return outside + 1.5 * span.total(written, min(units, ENOUGH_UNITS))


def num_runs_to_come(num_policies: int, number: int, done: int) -> int:
    """Up to the first verdict."""
    return max(1, num_policies * max(1, MIN_ROUNDS - number + 1) - done)
