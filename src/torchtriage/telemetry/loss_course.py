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
        self._is_unscaled = False
        self._optimizer: int | None = None
        self._is_mixed = False
        self._is_complete = True

    def begin_anew(self) -> None:
        """What was taken for steps were parts of a first one, which is left out."""
        with self._lock:
            self._waiting = []
            self._buckets = CurveBuckets(1, TOTAL_BUCKETS)
        self._optimizer, self._sum = None, None

    def add(self, loss: float) -> None:
        if self._is_unscaled:       # GradScaler skipped the step before
            self._sum, self._is_unscaled = None, False
        self._sum = loss if self._sum is None else self._sum + loss

    def unscale(self, inverse: float) -> None:
        """GradScaler divides the gradients of this step, whose losses it has multiplied."""
        if self._sum is not None and not self._is_unscaled:
            self._sum *= inverse
        self._is_unscaled = True

    def interrupt(self) -> None:
        """The loss of a step cannot be read: the sampled ones are all that is known."""
        self._is_complete = False

    def step_ended(self, optimizer: int, step: int) -> None:
        """`optimizer`: its id."""
        total, self._sum, self._is_unscaled = self._sum, None, False
        if total is None:       # another optimizer has made a step with the same loss
            return
        if self._optimizer is None:
            self._optimizer = optimizer
        self._is_mixed = self._is_mixed or optimizer != self._optimizer
        if self._is_mixed or not self._is_complete:
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
