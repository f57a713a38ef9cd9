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
from typing import TYPE_CHECKING

from torchtriage.capture.machine import NUM_BYTES
from torchtriage.recording.recording import Recording
from torchtriage.shapes.runs.trial import main_process, peak_memory

if TYPE_CHECKING:
    from torchtriage.shapes.runs.process import RunOutcome

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


# The share of a run in which it must use or wait for the processor. Anything else it waits for continues in a pause.
MIN_BUSY = 0.5
MEMORY_SHARE = 0.7      # of the free memory, for all runs together
_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def why_alone(first: "RunOutcome", recording: Recording, files: Sequence[str], num_runs: int) -> str:
    """Why runs like this first one cannot take turns; empty if they can."""
    if not hasattr(signal, "SIGSTOP"):
        return "this system cannot pause and continue a process"
    if files:
        return "it writes files"
    if sum(1 for process in recording.processes if process.events) > 1:
        return "it uses several processes"
    process = main_process(recording)
    if process.policy.peak_device_memory_bytes:
        return "it uses an accelerator, which cannot be paused with the process"
    needed, free = peak_memory(process), free_memory()
    if needed is None or free is None or num_runs * needed > MEMORY_SHARE * free:
        return f"{num_runs} copies may not fit in memory"
    if first.cpu_seconds + (process.policy.processor_wait_seconds or 0.0) < MIN_BUSY * first.seconds:
        return "it mostly waits for something other than the processor"
    return ""


def free_memory() -> int | None:
    """Bytes that new processes may use: of the machine, or of the control group of this process if that has less."""
    machine = _first_number(_MEMINFO, "MemAvailable:", 1024)
    confined, used = _first_number(_CGROUP / "memory.max"), _first_number(_CGROUP / "memory.current")
    if machine is None or confined is None or used is None:
        return machine
    return min(machine, confined - used)


def _first_number(path: Path, before: str = "", unit: int = 1) -> int | None:
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
        return unit * int(words[words.index(before) + 1 if before else 0])
    except (OSError, ValueError, IndexError):
        return None
