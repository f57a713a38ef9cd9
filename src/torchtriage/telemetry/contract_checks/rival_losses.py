"""Two networks with losses of their own, such as those of a GAN: one of them wins."""

import math
from collections import deque
from statistics import median

from torchtriage.recording.facts import BrokenContract

NUM_FIRST = 10
NUM_LAST = 50
MIN_LOSSES = 100
INTERVAL = 16           # updates from one verdict to the next
VANISHED = 0.1          # of the loss at the start; a discriminator that is not sure stays above half of it
RISEN = 2.0


class _Course:
    def __init__(self) -> None:
        self.num = 0
        self.first: list[float] = []
        self.last: deque[float] = deque(maxlen=NUM_LAST)

    def add(self, loss: float) -> None:
        self.num += 1
        if len(self.first) < NUM_FIRST:
            self.first.append(loss)
        self.last.append(loss)


class RivalLosses:
    """Adds up the losses between two steps, and gives the sum to the optimizer that makes the second one."""

    def __init__(self) -> None:
        self._courses: dict[int, _Course] = {}
        self._sum: float | None = None
        self._num_steps = 0
        self._broken: BrokenContract | None = None

    @property
    def broken(self) -> list[BrokenContract]:
        return [self._broken] if self._broken is not None else []

    def add(self, loss: float) -> None:
        self._sum = loss if self._sum is None else self._sum + loss

    def step_ended(self, optimizer: int, step: int) -> None:
        """`optimizer`: its id."""
        total, self._sum = self._sum, None
        if total is None or not math.isfinite(total):
            return
        self._courses.setdefault(optimizer, _Course()).add(total)
        self._num_steps += 1
        if len(self._courses) == 2 and self._num_steps % INTERVAL == 0:
            self._judge(step)

    def _judge(self, step: int) -> None:
        courses = list(self._courses.values())
        if min(course.num for course in courses) < MIN_LOSSES:
            return
        pairs = [(median(course.first), median(course.last)) for course in courses]
        (lost, fell), (start, rose) = sorted(pairs, key=lambda pair: pair[1] / pair[0] if pair[0] > 0 else math.inf)
        if lost > 0 and start > 0 and 0 <= fell <= VANISHED * lost and rose >= RISEN * start:
            first_step = self._broken.step if self._broken is not None else step
            self._broken = BrokenContract(
                code="TT452", step=first_step, count=NUM_LAST, value=fell, share=rose,
                names=(f"{lost:.3g}", f"{start:.3g}"),
            )
        else:
            self._broken = None
