"""torch.profiler around a training loop: a schedule, every activity this machine has, a bounded number of traces."""

from __future__ import annotations

import os
import socket
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

MAX_ACTIVE_STEPS = 1000             # over all cycles: what is recorded of a step has no bound, so their number must have one
MAX_BYTES = 512 * 1024 * 1024       # of traces: past it no further one is written


def training_profiler(
    output_dir: str | os.PathLike[str] = "profiler_traces", enabled: bool = True, wait: int = 1, warmup: int = 1, active: int = 3,
    repeat: int = 1, record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False,
) -> TrainingProfiler:
    """Profile some steps of a loop and write a trace a cycle (Perfetto, chrome://tracing and TensorBoard read them).

        with training_profiler("traces", enabled=args.profile) as profiler:
            for batch in batches:
                train(batch)
                profiler.step()

    Of each cycle `wait` steps run free, `warmup` are profiled and dropped, `active` are kept. A step is what you call `step` after: where
    an update is rare, as in PPO, call it after each update, or give `wait` and `active` in environment steps.
    """
    least = {"wait": 0, "warmup": 0, "active": 1, "repeat": 1}
    for name, value in (("wait", wait), ("warmup", warmup), ("active", active), ("repeat", repeat)):
        if value < least[name]:
            without_end = "; 0 would write traces without end" if name == "repeat" else ""
            raise ValueError(f"{name} must be at least {least[name]}, got {value}{without_end}")
    if active * repeat > MAX_ACTIVE_STEPS:
        raise ValueError(f"active x repeat must be at most {MAX_ACTIVE_STEPS} steps, got {active} x {repeat}; profile a few typical steps")
    options = {"record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack}
    return TrainingProfiler(Path(output_dir), (wait, warmup, active, repeat), options) if enabled else _Disabled()


class TrainingProfiler:
    """A running profile; `traces` are the files written so far."""

    def __init__(self, folder: Path, schedule: tuple[int, int, int, int], options: dict[str, bool]) -> None:
        self._folder, self._schedule, self._options = folder, schedule, options
        self._profile: Any = None
        self.num_steps = 0
        self.traces: list[Path] = []

    def __enter__(self) -> TrainingProfiler:
        wait, warmup, active, repeat = self._schedule
        self._folder.mkdir(parents=True, exist_ok=True)
        self._profile = torch.profiler.profile(
            activities=activities(), schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat),
            on_trace_ready=self._write, **self._options,
        )
        self._profile.__enter__()
        return self

    def step(self) -> None:
        """A step of the loop is over."""
        self.num_steps += 1
        if self._profile is not None:
            self._profile.step()
            if self.num_steps >= self._num_needed:
                self._stop()    # nothing more to record: let go of the events

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop(kind, error, trace)
        if self.num_steps < self._num_needed and kind is None:
            wait, warmup, active, repeat = self._schedule
            num_kept = max(0, self.num_steps % (wait + warmup + active) - wait - warmup)
            warnings.warn(
                f"training_profiler saw {self.num_steps} steps, its schedule needs {self._num_needed}: "
                f"(wait {wait} + warmup {warmup} + active {active}) x repeat {repeat}; the last cycle kept {num_kept} of {active} steps, "
                f"{len(self.traces)} of {repeat} traces were written. Call step() after each step, run longer, or lower wait and active",
                stacklevel=2,
            )

    @property
    def _num_needed(self) -> int:
        wait, warmup, active, repeat = self._schedule
        return (wait + warmup + active) * repeat

    def _stop(self, *error: Any) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.__exit__(*(error or (None, None, None)))

    def _write(self, profile: Any) -> None:
        if sum(path.stat().st_size for path in self.traces) > MAX_BYTES:
            warnings.warn(f"training_profiler has written more than {MAX_BYTES >> 20} MB to {self._folder} and writes no further trace; "
                          "lower active or repeat", stacklevel=2)
            return
        # The name that TensorBoard's plugin looks for; the number keeps two traces of one millisecond apart.
        name = f"{socket.gethostname()}_{os.getpid()}.{time.time_ns() // 1_000_000}_{len(self.traces)}.pt.trace.json.gz"
        try:
            profile.export_chrome_trace(str(self._folder / name))
        except (OSError, RuntimeError) as error:    # a full disk must not end the training
            warnings.warn(f"training_profiler could not write {self._folder / name}: {error}; the training goes on", stacklevel=2)
        else:
            self.traces.append(self._folder / name)


class _Disabled(TrainingProfiler):
    """Does nothing, so that the loop reads the same."""

    def __init__(self) -> None:
        super().__init__(Path(), (0, 0, 0, 0), {})

    def __enter__(self) -> TrainingProfiler:
        return self

    def step(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def activities() -> list[Any]:
    """Every activity that torch.profiler has here; says so where a device has none."""
    if torch.backends.mps.is_available():
        warnings.warn("torch.profiler has no activity for MPS: the trace shows the CPU side only; "
                      "for the GPU use torch.mps.profiler.profile() and Instruments", stacklevel=3)
    return sorted(torch.profiler.supported_activities(), key=lambda activity: activity.value)
