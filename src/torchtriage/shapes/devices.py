"""Waits for the accelerator, if there is one, and asks what memory it took."""


def synchronise() -> None:
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def device_name() -> str:
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return str(accelerator.type) if accelerator is not None else "cpu"


def reset_peak_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_bytes() -> int | None:
    """Of the device since the last reset; on the host the peak of a process cannot be reset, so that is not known."""
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else None
