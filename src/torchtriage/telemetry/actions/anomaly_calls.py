"""Functions that a Monitor calls with each anomaly: your own, `StopTraining`, `ProfileSteps`."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Sequence
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.recording.events import Anomaly, Event
from torchtriage.telemetry.profiler import MAX_ACTIVE_STEPS, TrainingProfiler, training_profiler
from torchtriage.text import counted

NON_FINITE = ("TT401", "TT402", "TT403")    # NaN or Inf in the loss, a gradient, a weight
MAX_WAITING = 1000      # anomalies that wait for the next step; the rest are in the recording only

AnomalyFunction = Callable[[Anomaly], object]


class TrainingStoppedError(TriageError):
    """A training was stopped on request, because of an anomaly."""


class AnomalyCalls:
    """Takes anomalies from any thread, and passes them on where the training calls `step`."""

    def __init__(self, functions: AnomalyFunction | Sequence[AnomalyFunction]) -> None:
        self._functions: tuple[Any, ...] = (functions,) if callable(functions) else tuple(functions)
        for function in self._functions:
            if not callable(function):
                raise TriageError(
                    "on_anomaly must be a function of one Anomaly, such as StopTraining(), or a list of them; "
                    f"got {function!r}"
                )
        self._waiting: collections.deque[Anomaly] = collections.deque(maxlen=MAX_WAITING)
        self._passed: set[tuple[str, str, int | None]] = set()

    def __bool__(self) -> bool:
        return bool(self._functions)

    def put(self, event: Event) -> None:
        if self._functions and isinstance(event, Anomaly):
            self._waiting.append(event)

    def step(self) -> None:
        """Call the functions; what they raise is meant for the training."""
        for function in self._functions:
            if isinstance(function, ProfileSteps):
                function.step()
        while self._waiting:
            anomaly = self._waiting.popleft()
            key = (anomaly.code, anomaly.subject, anomaly.step)
            if key in self._passed:     # a loss is tested as it is made, and again with the statistics of its step
                continue
            self._passed.add(key)
            for function in self._functions:
                function(anomaly)

    def close(self) -> None:
        for function in self._functions:
            if isinstance(function, ProfileSteps):
                function.close()


class StopTraining:
    """Raises TrainingStoppedError in `monitor.step()` if an anomaly has one of these codes; `TT4` is all of TT4xx."""

    def __init__(self, codes: Sequence[str] = NON_FINITE) -> None:
        self._codes = tuple(codes)

    def __call__(self, anomaly: Anomaly) -> None:
        if anomaly.code.startswith(self._codes):
            when = f" in step {anomaly.step}" if anomaly.step is not None else ""
            raise TrainingStoppedError(
                f"the training was stopped, as asked with StopTraining: {anomaly.code}, {anomaly.text}{when}; "
                f"see torchtriage explain {anomaly.code}"
            )


class ProfileSteps:
    """Profiles `steps` steps after the first anomaly with one of these codes, once; the trace is written to `folder`.

    The step right after the anomaly is not part of the trace: the profiler warms up in it.
    """

    def __init__(
        self, folder: str | os.PathLike[str] = "profiler_traces", steps: int = 3, codes: Sequence[str] = ("TT",),
    ) -> None:
        if not 1 <= steps <= MAX_ACTIVE_STEPS:
            raise TriageError(f"ProfileSteps takes 1 to {counted(MAX_ACTIVE_STEPS, 'step')}, got {steps}")
        self._folder, self._num_steps, self._codes = folder, steps, tuple(codes)
        self.profiler: TrainingProfiler | None = None

    def __call__(self, anomaly: Anomaly) -> None:
        if self.profiler is None and anomaly.code.startswith(self._codes):
            self.profiler = training_profiler(self._folder, wait=0, warmup=1, active=self._num_steps)
            self.profiler.__enter__()

    def step(self) -> None:
        if self.profiler is not None:
            self.profiler.step()

    def close(self) -> None:
        """End the profile where the training ends before it."""
        if self.profiler is not None:
            self.profiler.close()
