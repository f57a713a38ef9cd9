"""When to sample: at the interval of the level, stretched until the measured cost of telemetry is within its budget."""

import math
import time
from collections import deque
from collections.abc import Callable

from torchtriage.telemetry.config import RARE, TelemetryConfig, TelemetryLevel

DENSE_UPDATES = 20      # at the start every update is sampled if the budget allows: training often goes wrong early
WINDOW = 15             # update times whose median is the usual one: a compile or a checkpoint does not move it
# Total cost below which the budget does not bind: 1 % of ten seconds would allow almost no sample.
GRACE_SECONDS = 0.25
PAYING_BACK = 0.5       # share of the budget to use while the total cost exceeds it, which makes up for the start
WEIGHT = 0.3            # of the newest sample in the moving average of the cost
# A sample may take a second while the machine is paused. It counts as at most this many usual ones, and each of the
# first ones as the cheapest of them, or sampling would end there.
MAX_TIMES_USUAL = 4
NUM_FIRST = 3


class Pace:
    """The pace of one optimizer. `config` is shared; the pace that `leads` advances it."""

    def __init__(
        self, config: TelemetryConfig, clock: Callable[[], float] = time.perf_counter, leads: bool = True,
    ) -> None:
        self.config = config
        self.clock = clock
        self._leads = leads
        self._durations: deque[float] = deque(maxlen=WINDOW)
        self._last_end: float | None = None
        self._own = 0.0                 # seconds of telemetry since the last timed update ended
        self._num_untimed = 0           # updates since then
        self._num_left = 0              # updates to come before the next one is timed
        self._since = 0                 # updates since the last sample
        self._rare_at = -math.inf       # the last update whose weights, change and clipped gradients were measured
        self._num_samples = 0
        self._cost = math.nan           # of a sample, on the program's thread
        self._background_cost = 0.0     # of a sample, on the background thread
        self.background_seconds = 0.0   # of telemetry on other threads; only they add to it
        self._background_counted = 0.0  # of them included in `own_seconds`
        self.num_updates = 0
        self.setup_seconds = 0.0
        self.own_seconds = 0.0
        self.run_seconds = 0.0
        self.stretch = 1
        # Other ranks hold parts of the parameters: complete statistics exist only for samples that all of them take.
        self.is_shared = False
        self.agreed = 1                 # the stretch of the slowest rank
        self.interval = config.interval         # current number of updates from one sample to the next
        self.is_due = config.level is not TelemetryLevel.OFF

    def wanted(self) -> frozenset[str]:
        """The categories to collect in the sample of this update; called once per sample."""
        categories = self.config.collected(self.since_rare)
        if RARE in categories:
            self._rare_at = self.num_updates
        return categories

    @property
    def since_rare(self) -> float:
        """Updates since the slowly changing statistics were last collected."""
        # Ranks that share parameters must collect the same, whichever of them samples more often.
        return math.inf if self.num_updates < DENSE_UPDATES or self.is_shared else self.num_updates - self._rare_at

    def charge(self, seconds: float) -> None:
        """Add time of telemetry on the program's thread."""
        self._own += seconds

    def charge_setup(self, seconds: float) -> None:
        """Add time spent once. It is separate, or a slow start would count as the cost of every sample."""
        self.setup_seconds += seconds

    def charge_background(self, seconds: float, num_samples: int = 0) -> None:
        """Add processor time on another thread: it holds the interpreter lock, which the program then waits for."""
        self.background_seconds += seconds
        if num_samples:
            self._background_cost += WEIGHT * (seconds / num_samples - self._background_cost)

    def update_ended(self, is_sampled: bool) -> None:
        """An update is over; decide whether the next one is sampled.

        Most are not, and are not even timed one by one.
        """
        self.num_updates += 1
        self._since = 0 if is_sampled else self._since + 1
        self._num_untimed += 1
        config = self.config
        if self._leads:
            config.update_count += 1
        if self._num_left > 0 and not is_sampled and config.update_count >= config.escalated_until:
            self._num_left -= 1
            return
        self._catch_up(is_sampled)
        self.is_due = self._decide()

    def _catch_up(self, is_sampled: bool) -> None:
        """Add the time of the updates since the last timed one."""
        now, last, own = self.clock(), self._last_end, self._own
        self._last_end = now
        if last is None:        # the duration of the first update is unknown, so its cost counts as set-up
            self.setup_seconds += own
            own = run_seconds = 0.0
        else:
            run_seconds = now - last
            self._durations.append((run_seconds - own) / self._num_untimed)
        self._num_untimed = 0
        if is_sampled:
            self._learn()
        self._own = 0.0
        before, background = self.own_seconds, self.background_seconds
        self.own_seconds += own + background - self._background_counted
        self._background_counted = background
        self.run_seconds += run_seconds
        if self._leads:
            self.config.spent(max(0.0, self.own_seconds - max(before, GRACE_SECONDS)), run_seconds)

    def _learn(self) -> None:
        self._num_samples += 1
        if self._num_samples == 1:
            return      # the first sample allocates buffers
        if self._num_samples <= 1 + NUM_FIRST:
            self._cost = self._own if math.isnan(self._cost) else min(self._cost, self._own)
            if self._num_samples <= NUM_FIRST:
                return
        else:
            self._cost += WEIGHT * (min(self._own, MAX_TIMES_USUAL * self._cost) - self._cost)
        usual = sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0
        budget = self.config.overhead_budget * (PAYING_BACK if self.share > self.config.overhead_budget else 1.0)
        allowed = budget * usual
        total = self._cost + self._background_cost
        self.stretch = max(1, math.ceil(total / allowed)) if allowed > 0 else max(self.stretch, self.config.interval)

    def _decide(self) -> bool:
        config = self.config
        self._num_left = 0
        if config.level is TelemetryLevel.OFF:
            return False
        if config.is_escalated:
            return True     # the config ends an escalation when the budget is spent
        interval, needed = config.interval, self.needed
        self.interval = self._shared(interval) if self.is_shared else max(interval, needed)
        if self.num_updates < DENSE_UPDATES:
            interval = 1
        if self.is_shared:
            return (self.num_updates + 1) % self._shared(interval) == 0
        num_before = max(interval, needed) - self._since - 1        # updates before the next sample
        self._num_left = num_before - 1         # the last of them decides again
        return num_before <= 0

    def _shared(self, interval: int) -> int:
        """The interval, doubled until it is long enough: every sample of the slowest rank is then one of all ranks."""
        while interval < max(self.needed, self.agreed):
            interval *= 2
        return interval

    @property
    def needed(self) -> int:
        """The stretch that the budget requires."""
        return self.stretch if self.own_seconds >= GRACE_SECONDS else 1

    @property
    def share(self) -> float:
        """Telemetry's share of the run's time, without set-up; 0 before anything was measured."""
        return self.own_seconds / self.run_seconds if self.run_seconds > 0 else 0.0
