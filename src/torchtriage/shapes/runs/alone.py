"""Whether the runs of a program can take turns."""

import signal
from collections.abc import Sequence
from pathlib import Path

from torchtriage.proof.runs.process import RunOutcome
from torchtriage.recording.recording import Recording
from torchtriage.shapes.runs.trial import main_process, peak_memory

# The share of a run in which it must use or wait for the processor. Anything else it waits for continues in a pause.
MIN_BUSY = 0.5
MEMORY_SHARE = 0.7      # of the free memory, for all runs together
_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def why_alone(first: RunOutcome, recording: Recording, files: Sequence[str], num_runs: int) -> str:
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
