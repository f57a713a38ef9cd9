"""Counts training steps: calls of torchtriage.step(), else steps of the first optimizer that stepped."""

import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from torchtriage.capture import torch_private
from torchtriage.recording.recording import Series

MAX_POINTS = 2048   # of the step-time series; when full, neighbours are merged and the stride doubles


class StepCounter:
    """The step that an event belongs to, and how long steps take, in bounded memory."""

    __slots__ = ("by_optimizer", "explicit", "first", "marks", "_num_marks", "_points", "_stride", "_last")

    def __init__(self) -> None:
        self.explicit = 0
        self.first: int | None = None
        self.by_optimizer: dict[int, int] = {}
        self.marks: list[float] = []
        self._num_marks = 0
        self._points: list[float] = []
        self._stride = 1
        self._last: float | None = None

    def current(self) -> int | None:
        """The number of the running step; None if the program has shown no step yet."""
        if self.explicit:
            return self.explicit
        return None if self.first is None else self.by_optimizer[self.first]

    def facts(self) -> Mapping[str, Any]:
        source = "torchtriage.step()" if self.explicit else "optimizer" if self.first is not None else None
        others = [n for key, n in list(self.by_optimizer.items()) if key != self.first]
        return {"num_steps": self.current(), "step_source": source, "steps_of_other_optimizers": others}

    def series(self) -> Series:
        """Seconds a step, each point the mean over `stride` steps; called on the recorder's thread."""
        marks, self.marks = self.marks, []
        for mark in marks:
            if self._last is not None:
                self._num_marks += 1
                if (self._num_marks - 1) % self._stride == 0:
                    self._points.append(0.0)
                self._points[-1] += (mark - self._last) / self._stride
            self._last = mark
            if len(self._points) > MAX_POINTS:
                self._points = [(a + b) / 2 for a, b in zip(self._points[::2], self._points[1::2], strict=False)]
                self._stride *= 2
                self._num_marks = len(self._points) * self._stride
        steps = [2 + i * self._stride for i in range(len(self._points))]
        return Series(name="step_seconds", steps=steps, values=list(self._points))


def optimizer_hook(counter: StepCounter) -> Callable[..., None]:
    """A post-step hook that Dynamo neither traces into nor compiles: it returns at once while tracing, and calls no Python."""
    import torch

    is_compiling = torch.compiler.is_compiling
    clock = time.perf_counter

    def count_step(optimizer: object, args: object, kwargs: object) -> None:
        if is_compiling():
            return
        key = id(optimizer)
        if counter.first is None:
            counter.first = key
        counter.by_optimizer[key] = counter.by_optimizer.get(key, 0) + 1
        if key == counter.first and not counter.explicit:
            counter.marks.append(clock())

    torch_private.never_compile(count_step)
    return count_step


def watch_optimizers(counter: StepCounter, optimizer_module: ModuleType) -> Callable[[], None] | None:
    """Count the steps of every optimizer; returns the undoing, or None where torch has no global hook."""
    register = getattr(optimizer_module, "register_optimizer_step_post_hook", None)
    if register is None:
        return None
    handle = register(optimizer_hook(counter))
    remove: Callable[[], None] = handle.remove
    return remove


active: list[StepCounter] = []


def step() -> None:
    """Say that a training step ends here; free when nothing observes the program, and safe inside a compiled function."""
    if not active:
        return
    import torch

    if torch.compiler.is_compiling():
        return
    for counter in active:
        counter.explicit += 1
        counter.marks.append(time.perf_counter())
