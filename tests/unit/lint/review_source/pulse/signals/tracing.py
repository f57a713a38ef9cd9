"""Traces of a training by torch.profiler.

    with trace_training("traces") as trace:
        for _ in range(updates):
            update()
            if trace is not None:
                trace.step()
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler


@contextmanager
def trace_training(
    folder: str = "traces",
    wait: int = 1,
    warmup: int = 1,
    active: int = 3,
    repeat: int = 1,
    enabled: bool = True,
) -> Iterator[profile | None]:
    """Profiles what runs inside and writes a trace for TensorBoard."""
    if not enabled:
        yield None
        return
    kinds = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(ProfilerActivity.CUDA)
    with profile(
        activities=kinds,
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=repeat),
        on_trace_ready=tensorboard_trace_handler(folder),
        record_shapes=True,
    ) as running:
        yield running
