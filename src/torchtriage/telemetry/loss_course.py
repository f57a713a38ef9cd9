"""The loss of every step, where reading it does not wait for a device."""

import threading

import numpy as np

from torchtriage.recording.recording import Series
from torchtriage.recording.series import LOSS
from torchtriage.telemetry.sinks.curves import TOTAL_BUCKETS, CurveBuckets


class LossCourse:
    """Adds up the losses of a step, and keeps their sum as a series in bounded memory.

    A program with several optimizers has several losses of one step, which are not comparable: it has no course.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, float]] = []
        self._buckets = CurveBuckets(1, TOTAL_BUCKETS)
        self._sum: float | None = None
        self._optimizer: int | None = None
        self._is_mixed = False
        self._is_complete = True

    def add(self, loss: float) -> None:
        self._sum = loss if self._sum is None else self._sum + loss

    def interrupt(self) -> None:
        """The loss of a step cannot be read: the sampled ones are all that is known."""
        self._is_complete = False

    def step_ended(self, optimizer: int, step: int) -> None:
        """`optimizer`: its id."""
        if self._optimizer is None:
            self._optimizer = optimizer
        self._is_mixed = self._is_mixed or optimizer != self._optimizer
        total, self._sum = self._sum, None
        if total is None or self._is_mixed or not self._is_complete:
            return
        with self._lock:
            self._waiting.append((step, total))
            if len(self._waiting) >= TOTAL_BUCKETS:
                self._take_in()

    def series(self) -> Series | None:
        if self._is_mixed or not self._is_complete:
            return None
        with self._lock:
            self._take_in()
            for steps, values in self._buckets.points():
                if len(steps):
                    return Series(name=LOSS, steps=steps, values=values)
        return None

    def _take_in(self) -> None:
        if self._waiting:
            steps_N, values_N = np.array(self._waiting, dtype=np.float64).T
            self._waiting = []
            self._buckets.add(steps_N, values_N[:, None], np.ones((len(steps_N), 1), dtype=bool))
