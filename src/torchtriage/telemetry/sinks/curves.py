"""The curves of a recording: every series down-sampled as it grows, in bounded memory.   P tensors."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from torchtriage.recording.events import Anomaly, Event
from torchtriage.recording.recording import Series
from torchtriage.telemetry.downsample import MAX_BUCKETS, Thinned
from torchtriage.telemetry.observation import Observation

WHOLE_BUCKETS = 2048        # of curves of the whole, of which there are few
MAX_WHOLE = 1024            # names; a program that makes up a new name each step is not followed further
MIN_SECONDS = 2.0           # between two hand-overs of all curves
REST = 20.0                 # and at least so many times as long as the last one took
# Quantities of a tensor whose curves there is memory for in any case; a bucket of the others holds little, and they are rarely there.
_EDGE_BUCKETS = MAX_BUCKETS // 4


class Curves:
    """Takes observations on one thread; another asks for the series."""

    name = "recording"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._whole: dict[str, Thinned] = {}
        self._tensors: dict[tuple[str, Sequence[str]], Thinned] = {}    # by quantity and the names of the tensors
        self._next_time = float("-inf")
        self._is_closed = False
        self.num_left_out = 0

    def write(self, observation: Observation) -> None:
        with self._lock:
            for name, value in observation.values.items():
                self._put_whole(name, observation.step, value)
            for quantity, (values_P, seen_P) in observation.columns().items():
                key = quantity, observation.names
                if key not in self._tensors:
                    buckets = MAX_BUCKETS if quantity in ("grad_norm", "weight_norm") else _EDGE_BUCKETS
                    self._tensors[key] = Thinned(len(observation.names), buckets)
                self._tensors[key].add(observation.step, values_P, seen_P)

    def event(self, event: Event) -> None:
        """The point at which a rule fired stays, however often its curve is thinned."""
        if not isinstance(event, Anomaly) or event.step is None:
            return
        with self._lock:
            if event.subject in self._whole:
                self._whole[event.subject].mark_last(0)
            for (_, names), thinned in self._tensors.items():
                if event.subject in names:
                    thinned.mark_last(names.index(event.subject))

    def close(self) -> None:
        self._is_closed = True

    def series(self) -> list[Series]:
        """All curves if it is time to write them again, else none; after `close` all of them."""
        now = self._clock()
        if now < self._next_time and not self._is_closed:
            return []
        with self._lock:
            found = list(self._all())
        self._next_time = self._clock() + max(MIN_SECONDS, REST * (self._clock() - now))
        return found

    def _all(self) -> Iterable[Series]:
        for name, thinned in self._whole.items():
            steps, values = thinned.points(0)
            yield Series(name=name, steps=steps, values=values)
        for (quantity, names), thinned in self._tensors.items():
            for number, name in enumerate(names):
                steps, values = thinned.points(number)
                if len(steps):
                    yield Series(name=f"{quantity}/{name}", steps=steps, values=values)

    def _put_whole(self, name: str, step: int, value: Any) -> None:
        thinned = self._whole.get(name)
        if thinned is None:
            if len(self._whole) >= MAX_WHOLE:
                self.num_left_out += 1
                return
            thinned = self._whole[name] = Thinned(1, WHOLE_BUCKETS)
        thinned.add(step, np.asarray([value]), np.ones(1, dtype=bool))
