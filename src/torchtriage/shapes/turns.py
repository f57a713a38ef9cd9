"""Processes that take turns on the machine, a few milliseconds each, so that whatever slows it down slows all of them alike.

One after the other, runs of the same program differ by 3 to 7 % on a busy machine; in turns, by 1 % (docs/how-it-works.md).
"""

import bisect
import math
import mmap
import os
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from torchtriage.capture.clock import NUM_BYTES

TURN_SECONDS = 0.05


class Pauses:
    """When a process stood still, in seconds since the epoch."""

    def __init__(self, pauses: Sequence[tuple[float, float]] = ()) -> None:
        self._ends = [end for _, end in pauses]
        self._starts = [start for start, _ in pauses]
        self._sums = [0.0]
        for start, end in pauses:
            self._sums.append(self._sums[-1] + end - start)

    def active(self, moment: float) -> float:
        """A moment on a clock that stands still with the process."""
        number = bisect.bisect_right(self._starts, moment)
        within = max(0.0, self._ends[number - 1] - moment) if number else 0.0
        return moment - self._sums[number] + within


NEVER = Pauses()


class InTurns:
    """One process: it stands still until its turn comes. `paused` is the file in which its clock finds how long it has stood still."""

    def __init__(self, child: "subprocess.Popen[bytes]", paused: Path, limit_seconds: float) -> None:
        self.child, self.seconds, self.reached_limit = child, 0.0, False
        self._limit, self._pauses, self._sum = limit_seconds, list[tuple[float, float]](), 0.0
        with paused.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), NUM_BYTES)
        self._stand_still()

    @property
    def pauses(self) -> Pauses:
        return Pauses(self._pauses)

    def go_on(self, seconds: float) -> bool:
        """Whether it takes another turn after this one, of so many seconds."""
        began = self._run()
        try:
            self.child.wait(seconds)
            has_ended = True
        except subprocess.TimeoutExpired:
            has_ended = False
        self.seconds += time.perf_counter() - began
        if has_ended:
            return False
        self._stand_still()
        self.reached_limit = self.seconds >= self._limit
        return not self.reached_limit

    def _stand_still(self) -> None:
        _signal_all(self.child, signal.SIGSTOP)
        self._since = time.perf_counter(), time.time()

    def _run(self) -> float:
        """When it began to run."""
        since, since_epoch = self._since
        now = time.perf_counter()
        self._sum += now - since
        self._pauses.append((since_epoch, since_epoch + now - since))
        self._shared[:] = struct.pack("d", self._sum)      # before it runs: its clock must not see the pause as its own time
        _signal_all(self.child, signal.SIGCONT)
        return now


def take_turns(runs: Sequence[InTurns], seconds: float = math.inf) -> None:
    """Until every process has ended or stands still: at its own limit, or because this is how long all may take together."""
    going, until = list(runs), time.monotonic() + seconds
    while going and time.monotonic() < until:
        going = [run for run in going if run.go_on(TURN_SECONDS)]
    for run in going:
        run.reached_limit = True


def new_pause_file(path: Path) -> Path:
    path.write_bytes(bytes(NUM_BYTES))
    return path


def _signal_all(child: "subprocess.Popen[bytes]", number: int) -> None:
    """The process and what it started; it may have ended this instant."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass
