"""Processes that take turns on the machine, a few milliseconds each, so that any slowdown affects all of them equally.

Runs of the same program differ by 3 to 7 % on a busy machine if they run one after the other, and by 1 % if they take
turns (docs/internals/measurements.md).
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

from torchtriage.capture.machine import NUM_BYTES

TURN_SECONDS = 0.05


class Pauses:
    """The intervals in which a process was paused, in seconds since the epoch."""

    def __init__(self, pauses: Sequence[tuple[float, float]] = ()) -> None:
        self._ends = [end for _, end in pauses]
        self._starts = [start for start, _ in pauses]
        self._sums = [0.0]
        for start, end in pauses:
            self._sums.append(self._sums[-1] + end - start)

    def active(self, moment: float) -> float:
        """A moment on a clock that is paused with the process."""
        number = bisect.bisect_right(self._starts, moment)
        within = max(0.0, self._ends[number - 1] - moment) if number else 0.0
        return moment - self._sums[number] + within


NEVER = Pauses()


class InTurns:
    """One process, paused until its turn. Its clock reads from the file `paused` for how long it was paused."""

    def __init__(self, child: "subprocess.Popen[bytes]", paused: Path, limit_seconds: float) -> None:
        self.child, self.seconds, self.reached_limit = child, 0.0, False
        self._limit, self._pauses, self._sum = limit_seconds, list[tuple[float, float]](), 0.0
        with paused.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), NUM_BYTES)
        self._pause()

    @property
    def pauses(self) -> Pauses:
        return Pauses(self._pauses)

    def take_turn(self, seconds: float) -> bool:
        """Run for this long; whether another turn is needed."""
        began = self._resume()
        try:
            self.child.wait(seconds)
            has_ended = True
        except subprocess.TimeoutExpired:
            has_ended = False
        self.seconds += time.perf_counter() - began
        if has_ended:
            return False
        self._pause()
        self.reached_limit = self.seconds >= self._limit
        return not self.reached_limit

    def _pause(self) -> None:
        _signal_all(self.child, signal.SIGSTOP)
        self._since = time.perf_counter(), time.time()

    def _resume(self) -> float:
        """Let the process continue; returns the time of that."""
        since, since_epoch = self._since
        now = time.perf_counter()
        self._sum += now - since
        self._pauses.append((since_epoch, since_epoch + now - since))
        self._shared[:] = struct.pack("d", self._sum)      # before it continues: its clock must not count the pause
        _signal_all(self.child, signal.SIGCONT)
        return now


def take_turns(runs: Sequence[InTurns], seconds: float = math.inf) -> None:
    """Give turns until every process has ended or reached its limit, or all together have taken `seconds`."""
    running, until = list(runs), time.monotonic() + seconds
    while running and time.monotonic() < until:
        running = [run for run in running if run.take_turn(TURN_SECONDS)]
    for run in running:
        run.reached_limit = True


def new_pause_file(path: Path) -> Path:
    path.write_bytes(bytes(NUM_BYTES))
    return path


def _signal_all(child: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal the process and its children; it may have ended in the meantime."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass
