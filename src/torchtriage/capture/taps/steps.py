"""The step counter: counts calls of torchtriage.step(), else steps of the first optimizer that stepped."""

from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.machine import Clock
from torchtriage.capture.torch_private.training import wrap_record_function
from torchtriage.recording.bounded_series import MeanSeries
from torchtriage.recording.recording import Series
from torchtriage.recording.series import STEP_SECONDS

OPTIMIZER_BLOCK = "Optimizer.step#"     # how torch names the record_function block around a step
MAX_POINTS = 2048   # of the step-time series


class StepCounter:
    """The number of the current step and the duration of all steps, in bounded memory."""

    __slots__ = (
        "_first_time", "_identity", "_last", "_seconds", "by_optimizer", "clock", "explicit", "first", "marks",
        "on_first_step",
    )

    def __init__(self, on_first_step: Callable[[], None] = lambda: None, clock: Clock | None = None) -> None:
        self.on_first_step, self.clock = on_first_step, clock or Clock()
        self.start_over()

    def start_over(self) -> None:
        self.explicit = 0                           # calls of torchtriage.step()
        self.first: int | None = None               # the id of the optimizer that stepped first
        self._identity: tuple[Any, ...] = ()        # of the first optimizer, which may be made again
        self.by_optimizer: dict[int, int] = {}      # id of an optimizer -> its steps
        self.marks: list[float] = []                # ends of steps that are not yet in the series
        self._seconds = MeanSeries(MAX_POINTS)
        self._last: float | None = None
        self._first_time: float | None = None

    def count(self, optimizer: Any) -> int:
        """Count a step of an optimizer; returns the id by which it is known."""
        key = id(optimizer)
        if key not in self.by_optimizer:
            identity = _identity(optimizer)
            if self.first is None:
                self._identity = identity
            elif identity and identity == self._identity:       # it was made again, and is the first one now
                former = self.first
                self.by_optimizer[key] = self.by_optimizer[former]
                self.first = key
                del self.by_optimizer[former]
        self.by_optimizer[key] = self.by_optimizer.get(key, 0) + 1
        return key

    def current(self) -> int | None:
        """The number of the current step; None if no step has been counted yet."""
        if self.explicit:
            return self.explicit
        return None if self.first is None else self.by_optimizer[self.first]

    def facts(self) -> Mapping[str, Any]:
        source = None
        if self.explicit:
            source = "torchtriage.step()"
        elif self.first is not None:
            source = "optimizer"
        others = [num_steps for key, num_steps in list(self.by_optimizer.items()) if key != self.first]
        return {"num_steps": self.current(), "step_source": source, "steps_of_other_optimizers": others}

    def first_time(self) -> float | None:
        """The end of the first step in seconds since the epoch; the series then gives the end of every other step."""
        if self._first_time is None and self.marks:
            self._first_time = self.clock.since_epoch() - (self.clock.now() - self.marks[0])
        return self._first_time

    def series(self) -> Series:
        """Seconds per step, from the second step on; called on the recorder's thread."""
        self.first_time()
        marks, self.marks = self.marks, []
        for mark in marks:
            if self._last is not None:
                self._seconds.add(mark - self._last)
            self._last = mark
        return self._seconds.series(STEP_SECONDS, first_step=2)


def watch_optimizers(counter: StepCounter, profiler_module: ModuleType) -> Callable[[], None] | None:
    """Count the steps of every optimizer that steps eagerly; returns a function to stop, or None if torch cannot.

    Every optimizer steps inside a `record_function("Optimizer.step#...")` block, which Dynamo does not trace. Dynamo
    would trace a hook in torch's own lists, and that would change which frames it compiles.
    """
    clock = counter.clock.now

    def on_block_end(frame: FrameType) -> None:
        key = counter.count(frame.f_locals.get("self"))
        if counter.first is None:
            counter.first = key     # from now on the recorder's thread may ask for the count
            counter.on_first_step()
        if key == counter.first and not counter.explicit:
            counter.marks.append(clock())

    return wrap_record_function(profiler_module, OPTIMIZER_BLOCK, on_block_end)


def _identity(optimizer: Any) -> tuple[Any, ...]:
    """The class and parameters of an optimizer."""
    groups = [group["params"] for group in getattr(optimizer, "param_groups", ())]
    first = next((p for group in groups for p in group), None)
    return () if first is None else (type(optimizer), id(first), sum(map(len, groups)))


active: list[StepCounter] = []


def step() -> None:
    """Mark the end of a training step.

    It costs nothing when the program is not observed, and is safe inside a compiled function.
    """
    if not active:
        return
    import torch

    if torch.compiler.is_compiling():
        return
    for counter in active:
        if not counter.explicit:
            counter.on_first_step()
        counter.explicit += 1
        counter.marks.append(counter.clock.now())
