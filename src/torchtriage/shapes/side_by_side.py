"""Whether several runs of a program may take turns on the machine, or must come one after the other."""

import signal
from collections.abc import Sequence
from pathlib import Path

from torchtriage.recording.recording import Recording
from torchtriage.shapes.reading import main_process, peak_memory
from torchtriage.shapes.running import Outcome

MIN_BUSY = 0.5          # of a run, that it must use the processor, or be ready to: what else it waits for goes on while it stands still
MEMORY_SHARE = 0.7      # of the free memory, that all of them may take together
_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def why_alone(first: Outcome, recording: Recording, files: Sequence[str], num_runs: int) -> str:
    """Why runs like this first one cannot take turns; empty if they can."""
    if not hasattr(signal, "SIGSTOP"):
        return "this system cannot stop a process and let it go on"
    if files:
        return "it writes files"
    if sum(1 for process in recording.processes if process.events) > 1:
        return "it consists of several processes"
    process = main_process(recording)
    if process.facts.get("peak_device_memory_bytes"):
        return "it works on an accelerator, which does not stand still with it"
    needed, free = peak_memory(process), free_memory()
    if needed is None or free is None or num_runs * needed > MEMORY_SHARE * free:
        return f"{num_runs} of it at a time may not fit into memory"
    if first.cpu_seconds + (process.facts.get("processor_wait_seconds") or 0.0) < MIN_BUSY * first.seconds:
        return "it waits for something else than the processor most of the time"
    return ""


def free_memory() -> int | None:
    """Bytes that new processes may take: of the machine, or of what this process is confined to."""
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
