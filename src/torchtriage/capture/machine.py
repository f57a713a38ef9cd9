"""The resources of a process under a shape policy: clock, memory, processor."""

import time
from collections.abc import Callable
from typing import Any

from torchtriage.capture.torch_private import base as torch_private

NUM_BYTES = 8       # of the file with the paused seconds, a float


class Clock:
    """`now()` is for comparing moments of one process, `since_epoch()` for moments of several."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.since_epoch: Callable[[], float] = time.time


class ActiveClock(Clock):
    """A clock without the seconds in which the process was paused.

    The process that pauses it keeps their sum in a file that both map into memory.
    """

    def __init__(self, path: str) -> None:
        import mmap  # not needed in most observed processes

        with open(path, "rb") as file:
            paused = memoryview(mmap.mmap(file.fileno(), NUM_BYTES, access=mmap.ACCESS_READ)).cast("d")

        def active(clock: Callable[[], float]) -> Callable[[], float]:
            def read() -> float:
                while True:
                    before, now = paused[0], clock()
                    if before == paused[0]:     # else the process was paused between the two reads
                        return now - before

            return read

        super().__init__()
        self.now, self.since_epoch = active(self.now), active(self.since_epoch)


def peak_memory_facts() -> dict[str, Any]:
    """The peak memory of this process so far, in bytes; None if unknown. The device is left out if it was not used."""
    facts = {"peak_memory_bytes": _resident_peak()}
    device = _device_peak()
    if device is not None:
        facts["peak_device_memory_bytes"] = device
    return facts


def _resident_peak() -> int | None:
    """From VmHWM, because ru_maxrss starts with the parent's peak before exec."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _device_peak() -> int | None:
    """The sum over all CUDA devices; None unless the program has used one."""
    cuda = torch_private.module("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return None
    return sum(int(cuda.max_memory_allocated(device)) for device in range(cuda.device_count()))


def processor_wait_seconds() -> float | None:
    """The time that the main thread was ready to run but waited for the processor; None if unknown."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
