"""The clock of steps and calls, and one that stands still while `torchtriage shapes` has the process stopped."""

import time
from collections.abc import Callable

NUM_BYTES = 8       # of a file that holds the seconds, a float


class Clock:
    """Seconds that pass: `now()` between two moments of a process, `since_epoch()` between processes."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.since_epoch: Callable[[], float] = time.time


class ActiveClock(Clock):
    """Without the seconds in which the process stood still; whoever stops it keeps their sum in a file that both have mapped."""

    def __init__(self, path: str) -> None:
        import mmap  # most observed processes need none

        with open(path, "rb") as file:
            paused = memoryview(mmap.mmap(file.fileno(), NUM_BYTES, access=mmap.ACCESS_READ)).cast("d")

        def active(clock: Callable[[], float]) -> Callable[[], float]:
            def read() -> float:
                while True:
                    before, now = paused[0], clock()
                    if before == paused[0]:     # else the process was stopped between the readings
                        return now - before

            return read

        super().__init__()
        self.now, self.since_epoch = active(self.now), active(self.since_epoch)
