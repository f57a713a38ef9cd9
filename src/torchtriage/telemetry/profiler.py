"""torch.profiler around a training loop: on a schedule, for every activity of this machine, with bounded traces."""

from __future__ import annotations

import os
import socket
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from torchtriage.text import counted

# Over all cycles: the events of a step are unbounded, so the number of steps is bounded.
MAX_ACTIVE_STEPS = 1000
MAX_BYTES = 512 * 1024 * 1024       # of traces, beyond which no further trace is written


def training_profiler(
    output_dir: str | os.PathLike[str] = "profiler_traces", enabled: bool = True, wait: int = 1, warmup: int = 1,
    active: int = 3, repeat: int = 1, record_shapes: bool = False, profile_memory: bool = False,
    with_stack: bool = False,
) -> TrainingProfiler:
    """Profile some steps of a loop and write one trace per cycle (for Perfetto, chrome://tracing or TensorBoard).

        with training_profiler("traces", enabled=args.profile) as profiler:
            for batch in batches:
                train(batch)
                profiler.step()

    In each cycle, `wait` steps are not profiled, `warmup` steps are profiled and discarded, `active` steps are
    recorded. A step is whatever you call `step` after. Where updates are rare, as in PPO, call it after each update,
    or give
    `wait` and `active` in environment steps.
    """
    least = {"wait": 0, "warmup": 0, "active": 1, "repeat": 1}
    for name, value in (("wait", wait), ("warmup", warmup), ("active", active), ("repeat", repeat)):
        if value < least[name]:
            consequence = "; 0 would never stop writing traces" if name == "repeat" else ""
            raise ValueError(f"{name} must be at least {least[name]}, got {value}{consequence}")
    if active * repeat > MAX_ACTIVE_STEPS:
        raise ValueError(
            f"active x repeat must be at most {MAX_ACTIVE_STEPS} steps, got {active} x {repeat}; "
            "profile a few typical steps"
        )
    options = {"record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack}
    if not enabled:
        return _Disabled()
    return TrainingProfiler(Path(output_dir), (wait, warmup, active, repeat), options)


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
            activities=activities(),
            schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat),
            on_trace_ready=self._write, **self._options,
        )
        self._profile.__enter__()
        return self

    def step(self) -> None:
        """Call it at the end of every step of the loop."""
        self.num_steps += 1
        if self._profile is not None:
            self._profile.step()
            if self.num_steps >= self._num_needed:
                self._stop()    # nothing more to record: release the events

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self._stop(kind, error, trace)
        if self.num_steps < self._num_needed and kind is None:
            wait, warmup, active, repeat = self._schedule
            num_kept = max(0, self.num_steps % (wait + warmup + active) - wait - warmup)
            warnings.warn(
                f"training_profiler counted {counted(self.num_steps, 'step')}, its schedule needs {self._num_needed}: "
                f"(wait {wait} + warmup {warmup} + active {active}) x repeat {repeat}; the last cycle recorded "
                f"{num_kept} of {active} steps, {len(self.traces)} of {repeat} traces were written. "
                "Call step() after each step, run longer, or lower wait and active",
                stacklevel=2,
            )

    def close(self) -> None:
        """End the profile early, without a warning; the steps so far are written."""
        self._stop()

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
            warnings.warn(f"training_profiler has written more than {MAX_BYTES >> 20} MB to {self._folder} "
                          "and writes no further traces; lower active or repeat", stacklevel=2)
            return
        # The name that TensorBoard's plugin expects; the number separates two traces of the same millisecond.
        milliseconds = time.time_ns() // 1_000_000
        name = f"{socket.gethostname()}_{os.getpid()}.{milliseconds}_{len(self.traces)}.pt.trace.json.gz"
        try:
            profile.export_chrome_trace(str(self._folder / name))
        except (OSError, RuntimeError) as error:    # a full disk must not end the training
            warnings.warn(f"training_profiler could not write {self._folder / name}: {error}; the training continues",
                          stacklevel=2)
        else:
            self.traces.append(self._folder / name)


class _Disabled(TrainingProfiler):
    """Does nothing, so that the loop need not change."""

    def __init__(self) -> None:
        super().__init__(Path(), (0, 0, 0, 0), {})

    def __enter__(self) -> TrainingProfiler:
        return self

    def step(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def activities() -> list[Any]:
    """Every activity that torch.profiler supports here; warns about a device without one."""
    if torch.backends.mps.is_available():
        warnings.warn("torch.profiler has no activity for MPS: the trace shows the CPU side only; "
                      "for the GPU use torch.mps.profiler.profile() and Instruments", stacklevel=3)
    return sorted(torch.profiler.supported_activities(), key=lambda activity: activity.value)
