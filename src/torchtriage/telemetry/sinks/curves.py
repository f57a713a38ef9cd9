"""The curves of a recording: every series down-sampled as it grows, in bounded memory.   N observations, P tensors."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from torchtriage.recording.events import Anomaly, Event
from torchtriage.recording.recording import Series
from torchtriage.telemetry.downsample import MAX_BUCKETS, Thinned
from torchtriage.telemetry.observation import Observation

WHOLE_BUCKETS = 2048        # of curves of the whole, of which there are few
MAX_WHOLE = 1024            # names; a program that makes up a new name each step is not followed further
MAX_WAITING = 20_000        # numbers of observations that are taken in together: numpy costs as much for one as for a hundred
MIN_SECONDS = 5.0           # between two hand-overs of all curves
REST = 1000.0               # and at least so many times as long as one took, writing it included: 0.1 % of a processor
# Quantities of a tensor whose curves there is memory for in any case; a bucket of the others holds little, and they are rarely there.
_EDGE_BUCKETS = MAX_BUCKETS // 4


class Curves:
    """Takes observations on one thread; another asks for the series."""

    name = "recording"

    def __init__(self, clock: Callable[[], float] = time.monotonic, work: Callable[[], float] = time.thread_time) -> None:
        """`work`: seconds of the processor on the thread that asks."""
        self._clock, self._work = clock, work
        self._lock = threading.Lock()
        self._waiting: list[Observation] = []
        self._num_waiting = 0
        self._whole: dict[str, Thinned] = {}
        self._tensors: dict[tuple[str, Sequence[str]], Thinned] = {}    # by quantity and the names of the tensors
        self._next_time = float("-inf")
        self._began: float | None = None        # the last hand-over, by `work`
        self._is_closed = False
        self.on_work: Callable[[float], None] = lambda _: None      # is told what a hand-over took of the processor
        self.num_left_out = 0

    def write(self, observation: Observation) -> None:
        with self._lock:
            self._waiting.append(observation)
            self._num_waiting += len(observation.values) + len(observation.names)
            if self._num_waiting >= MAX_WAITING:
                self._take_in()

    def event(self, event: Event) -> None:
        """The point at which a rule fired stays, however often its curve is thinned."""
        if not isinstance(event, Anomaly) or event.step is None:
            return
        with self._lock:
            self._take_in()
            if event.subject in self._whole:
                self._whole[event.subject].mark_last(0)
            for (_, names), thinned in self._tensors.items():
                if event.subject in names:
                    thinned.mark_last(names.index(event.subject))

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._take_in()     # the recorder asks for facts, what was left out among them, before it asks for the series

    def series(self) -> list[Series]:
        """All curves if it is time to write them again, else none; after `close` all of them."""
        if self._began is not None:     # what this thread has done since is the writing of what it was given
            seconds, self._began = self._work() - self._began, None
            self._next_time += REST * seconds
            self.on_work(seconds)
        if self._clock() < self._next_time and not self._is_closed:
            return []
        self._began = self._work()
        self._next_time = self._clock() + MIN_SECONDS
        with self._lock:
            self._take_in()
            return list(self._all())

    def _all(self) -> Iterable[Series]:
        for name, thinned in self._whole.items():
            for steps, values in thinned.points():
                yield Series(name=name, steps=steps, values=values)
        for (quantity, names), thinned in self._tensors.items():
            for name, (steps, values) in zip(names, thinned.points(), strict=True):
                if len(steps):
                    yield Series(name=f"{quantity}/{name}", steps=steps, values=values)

    def _take_in(self) -> None:
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for observation in waiting:
            for name, value in observation.values.items():
                points[name].append((observation.step, value))
        for name, of in points.items():
            self._put_whole(name, of)
        rows: dict[tuple[str, Sequence[str]], list[tuple[int, Any, Any]]] = defaultdict(list)
        for observation in waiting:
            for quantity, (values_P, seen_P) in observation.columns.items():
                rows[quantity, observation.names].append((observation.step, values_P, seen_P))
        for key, of_tensors in rows.items():
            if key not in self._tensors:
                buckets = MAX_BUCKETS if key[0] in ("grad_norm", "weight_norm") else _EDGE_BUCKETS
                self._tensors[key] = Thinned(len(key[1]), buckets)
            steps_N, values_NP, seen_NP = zip(*of_tensors, strict=True)
            self._tensors[key].add(steps_N, np.stack(values_NP), np.stack(seen_NP))

    def _put_whole(self, name: str, points: Sequence[tuple[int, float]]) -> None:
        thinned = self._whole.get(name)
        if thinned is None:
            if len(self._whole) >= MAX_WHOLE:
                self.num_left_out += len(points)
                return
            thinned = self._whole[name] = Thinned(1, WHOLE_BUCKETS)
        steps_N, values_N = np.array(points, dtype=np.float64).T
        thinned.add(steps_N, values_N[:, None], np.ones((len(points), 1), dtype=bool))
