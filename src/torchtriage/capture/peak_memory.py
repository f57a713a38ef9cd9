"""The most memory that this process has held so far."""

from typing import Any

from torchtriage.capture import torch_private


def peak_memory_facts() -> dict[str, Any]:
    """Bytes; what the system or torch does not tell is None, and without a device its line is left out."""
    device = _device_peak()
    return {"peak_memory_bytes": _resident_peak(), **({} if device is None else {"peak_device_memory_bytes": device})}


def _resident_peak() -> int | None:
    """VmHWM, and not ru_maxrss: that one begins with what the parent held before exec."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _device_peak() -> int | None:
    """Over all CUDA devices; None unless the program has used one."""
    cuda = torch_private.module("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return None
    return sum(int(cuda.max_memory_allocated(device)) for device in range(cuda.device_count()))
