"""How long this process was ready to run while others had the processor."""


def processor_wait_seconds() -> float | None:
    """Of its main thread; None where the system does not tell."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
