"""When to look, and at what: the interval of the level, stretched until telemetry's own cost, which is measured, is within its budget."""

import math
import time
from collections import deque
from collections.abc import Callable

from torchtriage.telemetry.config import RARE, TelemetryConfig, TelemetryLevel

DENSE_UPDATES = 20      # at the start every update is looked at if the budget allows: much of what goes wrong does so there
WINDOW = 15             # updates whose median is the time of an update: a compile or a checkpoint does not move it
GRACE_SECONDS = 0.25    # of ours in all before the budget binds: 1 % of a run of ten seconds would show next to nothing
PAYING_BACK = 0.5       # of the budget is spent while more than the budget has been: what the start took is made up for
WEIGHT = 0.3            # of the newest look in the average cost of one


class Pace:
    """For one optimizer. `config` is shared, and is advanced by the pace that `leads`."""

    def __init__(self, config: TelemetryConfig, clock: Callable[[], float] = time.perf_counter, leads: bool = True) -> None:
        self.config = config
        self.clock = clock
        self._leads = leads
        self._durations: deque[float] = deque(maxlen=WINDOW)
        self._last_end: float | None = None
        self._own = 0.0                 # seconds of ours since the last end that was timed
        self._num_untimed = 0           # updates since that end
        self._num_left = 0              # of them to come before the next is timed
        self._since = 0                 # updates since the last look
        self._rare_at = -math.inf       # the last update whose weights, updates and clipped gradients were taken
        self._num_looks = 0
        self._cost = math.nan           # of a look
        self._cost_behind = 0.0         # of a look, on the background thread
        self.behind_seconds = 0.0       # of ours on other threads; only they add to it
        self._behind_known = 0.0        # of them in `own_seconds`
        self.num_updates = 0
        self.setup_seconds = 0.0
        self.own_seconds = 0.0
        self.run_seconds = 0.0
        self.stretch = 1
        self.is_shared = False          # other ranks hold parts of the parameters: only what all of them look at is known of the whole
        self.agreed = 1                 # the stretch of the slowest of them
        self.interval = config.interval         # updates from one look to the next, as things stand
        self.is_due = config.level is not TelemetryLevel.OFF

    def wanted(self) -> frozenset[str]:
        """The categories that the look at this update takes; asked once a look."""
        found = self.config.collected(self.since_rare)
        if RARE in found:
            self._rare_at = self.num_updates
        return found

    @property
    def since_rare(self) -> float:
        """Updates since what changes slowly was last taken."""
        # Ranks that share parameters must take alike, whichever of them looks more often.
        return math.inf if self.num_updates < DENSE_UPDATES or self.is_shared else self.num_updates - self._rare_at

    def spent(self, seconds: float) -> None:
        """Ours, on the program's thread."""
        self._own += seconds

    def set_up(self, seconds: float) -> None:
        """Ours, once: kept apart, or one slow start would be taken for the cost of every look."""
        self.setup_seconds += seconds

    def spent_behind(self, seconds: float, num_looks: int = 0) -> None:
        """Ours, of the processor on another thread: it holds the interpreter, which the program then waits for."""
        self.behind_seconds += seconds
        if num_looks:
            self._cost_behind += WEIGHT * (seconds / num_looks - self._cost_behind)

    def update_ended(self, looked: bool) -> None:
        """An update is over; decides whether the next one is looked at. Most are not, and are not even timed one by one."""
        self.num_updates += 1
        self._since = 0 if looked else self._since + 1
        self._num_untimed += 1
        config = self.config
        if self._leads:
            config.update_count += 1
        if self._num_left > 0 and not looked and config.update_count >= config.escalated_until:
            self._num_left -= 1
            return
        self._catch_up(looked)
        self.is_due = self._decide()

    def _catch_up(self, looked: bool) -> None:
        """Count in the time of the updates since the last that was timed."""
        now, last, own = self.clock(), self._last_end, self._own
        self._last_end = now
        if last is None:        # how long the first update took is not known, so what it cost us is set-up
            self.setup_seconds += own
            own = run_seconds = 0.0
        else:
            run_seconds = now - last
            self._durations.append((run_seconds - own) / self._num_untimed)
        self._num_untimed = 0
        if looked:
            self._learn()
        self._own = 0.0
        before, behind = self.own_seconds, self.behind_seconds
        self.own_seconds += own + behind - self._behind_known
        self._behind_known = behind
        self.run_seconds += run_seconds
        if self._leads:
            self.config.spent(max(0.0, self.own_seconds - max(before, GRACE_SECONDS)), run_seconds)

    def _learn(self) -> None:
        self._num_looks += 1
        if self._num_looks == 1:
            return      # the first look makes buffers
        self._cost = self._own if math.isnan(self._cost) else self._cost + WEIGHT * (self._own - self._cost)
        usual = sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0
        budget = self.config.overhead_budget * (PAYING_BACK if self.share > self.config.overhead_budget else 1.0)
        allowed = budget * usual
        total = self._cost + self._cost_behind
        self.stretch = max(1, math.ceil(total / allowed)) if allowed > 0 else max(self.stretch, self.config.interval)

    def _decide(self) -> bool:
        config = self.config
        self._num_left = 0
        if config.level is TelemetryLevel.OFF:
            return False
        if config.is_escalated:
            return True     # the config ends it when the budget is spent
        interval, needed = config.interval, self.needed
        self.interval = self._shared(interval) if self.is_shared else max(interval, needed)
        if self.num_updates < DENSE_UPDATES:
            interval = 1
        if self.is_shared:
            return (self.num_updates + 1) % self._shared(interval) == 0
        num_before = max(interval, needed) - self._since - 1        # updates before the next look
        self._num_left = num_before - 1         # the last of them decides anew
        return num_before <= 0

    def _shared(self, interval: int) -> int:
        """The interval doubled until it is long enough: ranks of different speed then still meet at every look of the slowest."""
        while interval < max(self.needed, self.agreed):
            interval *= 2
        return interval

    @property
    def needed(self) -> int:
        """The stretch that the budget asks for."""
        return self.stretch if self.own_seconds >= GRACE_SECONDS else 1

    @property
    def share(self) -> float:
        """Of the run's time that was ours, the set-up left out; 0 before anything was measured."""
        return self.own_seconds / self.run_seconds if self.run_seconds > 0 else 0.0
