"""When to look: the interval of the level, stretched until telemetry's own cost is within its budget; and that cost, measured."""

import math
import time
from collections import deque
from collections.abc import Callable

from torchtriage.telemetry.levels import TelemetryConfig, TelemetryLevel

DENSE_UPDATES = 20      # at the start every update is looked at if the budget allows: much of what goes wrong does so there
WINDOW = 15             # updates whose median is the time of an update: a compile or a checkpoint does not move it
GRACE_SECONDS = 0.25    # of ours in all before the budget binds: 1 % of a run of ten seconds would show next to nothing
WEIGHT = 0.3            # of the newest look in the average cost of one


class Pace:
    """For one optimizer. `config` is shared, and is advanced by the pace that `leads`."""

    def __init__(self, config: TelemetryConfig, clock: Callable[[], float] = time.perf_counter, leads: bool = True) -> None:
        self.config = config
        self.clock = clock
        self._leads = leads
        self._durations: deque[float] = deque(maxlen=WINDOW)
        self._last_end: float | None = None
        self._own = 0.0                 # seconds of ours since the last end
        self._since = 0                 # updates since the last look
        self._num_looks = 0
        self._cost = math.nan           # of a look
        self._cost_behind = 0.0         # of a look, on the background thread
        self.num_updates = 0
        self.setup_seconds = 0.0
        self.own_seconds = 0.0
        self.run_seconds = 0.0
        self.stretch = 1
        self.is_due = config.level is not TelemetryLevel.OFF

    def spent(self, seconds: float) -> None:
        """Ours, on the program's thread."""
        self._own += seconds

    def set_up(self, seconds: float) -> None:
        """Ours, once: kept apart, or one slow start would be taken for the cost of every look."""
        self.setup_seconds += seconds

    def spent_behind(self, seconds_a_look: float) -> None:
        self._cost_behind += WEIGHT * (seconds_a_look - self._cost_behind)

    def update_ended(self, looked: bool) -> None:
        """An update is over; decides whether the next one is looked at."""
        now = self.clock()
        run_seconds = 0.0 if self._last_end is None else now - self._last_end
        if self._last_end is not None:
            self._durations.append(max(0.0, run_seconds - self._own))
        self._last_end = now
        self.num_updates += 1
        self._since = 0 if looked else self._since + 1
        if looked:
            self._num_looks += 1
            self._learn()
        own = self._own + (self._cost_behind if looked else 0.0)
        if run_seconds == 0.0:      # how long the first update took is not known, so what it cost us is set-up
            self.setup_seconds += own
            own = 0.0
        if self._leads:
            beyond = max(0.0, self.own_seconds + own - GRACE_SECONDS) - max(0.0, self.own_seconds - GRACE_SECONDS)
            self.config.advance(beyond, run_seconds)
        self.own_seconds += own
        self.run_seconds += run_seconds
        self._own = 0.0
        self.is_due = self._decide()

    def _learn(self) -> None:
        if self._num_looks == 1:
            return      # the first look makes buffers
        self._cost = self._own if math.isnan(self._cost) else self._cost + WEIGHT * (self._own - self._cost)
        usual = sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0
        allowed = self.config.overhead_budget * usual
        total = self._cost + self._cost_behind
        self.stretch = max(1, math.ceil(total / allowed)) if allowed > 0 else max(self.stretch, self.config.interval)

    def _decide(self) -> bool:
        if self.config.level is TelemetryLevel.OFF:
            return False
        if self.config.is_escalated:
            return True     # the config ends it when the budget is spent
        interval = 1 if self.num_updates < DENSE_UPDATES else self.config.interval
        return self._since + 1 >= (interval if self.own_seconds < GRACE_SECONDS else max(interval, self.stretch))

    @property
    def interval(self) -> int:
        """Updates from one look to the next, as things stand."""
        return max(self.config.interval, self.stretch if self.own_seconds >= GRACE_SECONDS else 1)

    @property
    def share(self) -> float:
        """Of the run's time that was ours, the set-up left out; 0 before anything was measured."""
        return self.own_seconds / self.run_seconds if self.run_seconds > 0 else 0.0
