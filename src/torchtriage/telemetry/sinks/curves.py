"""The curves of a recording: every series down-sampled as it grows, in bounded memory.   N observations, P tensors."""

import array
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from torchtriage.recording.events import Anomaly, Event
from torchtriage.recording.recording import Series
from torchtriage.recording.series import GRAD_NORM, WEIGHT_NORM
from torchtriage.telemetry.observation import Observation

MAX_BUCKETS = 512       # of a tensor's curve; 300 tensors of 9 quantities stay below 35 MB even if every bucket holds all it can
MAX_MARKED = 64         # points of a curve that are kept whatever they are, the first ones
_LOW, _HIGH, _BAD = range(3)
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
                buckets = MAX_BUCKETS if key[0] in (GRAD_NORM, WEIGHT_NORM) else _EDGE_BUCKETS
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


class Thinned:
    """Curves that are all observed at the same steps. Up to MAX_BUCKETS observations each is kept; beyond, neighbours share a bucket."""

    def __init__(self, num_curves: int, max_buckets: int = MAX_BUCKETS) -> None:
        if max_buckets < 2 or max_buckets % 2:
            raise ValueError(f"max_buckets must be even and at least 2, got {max_buckets}")
        self._max = max_buckets
        # For each bucket and curve the smallest and largest finite value and the first that is not finite; NaN steps: none.
        # At first there is memory for few buckets: most runs are short.
        self._value_3BC: Any = np.full((3, min(16, max_buckets), num_curves), np.nan, dtype=np.float32)
        self._step_3BC: Any = self._value_3BC.copy()
        self._marked: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._num_buckets = 0
        self._per_bucket = 1
        self._in_last = 1       # observations in the newest bucket; there is none yet, which is as if it were full
        self._newest: tuple[float, Any, Any] | None = None
        self._is_in_order = True

    def add(self, steps_N: Any, values_NC: Any, seen_NC: Any) -> None:
        """Observations one after the other, each of those curves that were seen at it."""
        steps_N = np.asarray(steps_N, dtype=np.float32)
        with np.errstate(over="ignore"):
            values_NC = np.asarray(values_NC).astype(np.float32)        # overflow to Inf is what float32 makes of it
        before = self._newest[0] if self._newest is not None else steps_N[0]
        self._is_in_order &= bool(before <= steps_N[0] and (steps_N[:-1] <= steps_N[1:]).all())
        self._newest = float(steps_N[-1]), values_NC[-1], seen_NC[-1]
        start, end = 0, len(steps_N)
        while start < end:
            room = self._per_bucket - self._in_last
            if not room and self._num_buckets == self._max:
                self._merge()
                continue
            num_whole = min((end - start) // self._per_bucket, self._max - self._num_buckets) if not room else 0
            width = room or self._per_bucket
            num = num_whole * width or min(width, end - start)
            part = slice(start, start + num)
            self._put(room > 0, *_reduced(steps_N[part], values_NC[part], seen_NC[part], num_buckets=max(1, num_whole)))
            self._in_last = (self._in_last if room else 0) + num // max(1, num_whole)
            start += num

    def mark_last(self, curve: int) -> None:
        """Keep the newest point of a curve for good."""
        if self._newest is not None and self._newest[2][curve] and len(self._marked[curve]) < MAX_MARKED:
            step, values_C, _ = self._newest
            self._marked[curve].append((step, float(values_C[curve])))

    def points(self) -> Iterator[tuple[Any, Any]]:
        """(steps, values) of each curve, as float32 arrays in the order of steps."""
        steps_CB3, values_CB3 = (kept_3BC[:, : self._num_buckets].T for kept_3BC in (self._step_3BC, self._value_3BC))
        order_CB3 = np.argsort(steps_CB3, axis=-1, kind="stable")
        steps_CB3, values_CB3 = (np.take_along_axis(kept_CB3, order_CB3, axis=-1) for kept_CB3 in (steps_CB3, values_CB3))
        is_kept_CB3 = ~np.isnan(steps_CB3)
        # A bucket of one observation has it as smallest and as largest.
        is_kept_CB3[..., 1:] &= (steps_CB3[..., 1:] != steps_CB3[..., :-1]) | (values_CB3[..., 1:] != values_CB3[..., :-1])
        for curve, is_kept_B3 in enumerate(is_kept_CB3):
            steps, values = steps_CB3[curve][is_kept_B3], values_CB3[curve][is_kept_B3]
            if curve in self._marked or not self._is_in_order:
                steps, values = self._with_marked(curve, steps, values)
            yield packed(steps), packed(values)

    def _with_marked(self, curve: int, steps: Any, values: Any) -> tuple[Any, Any]:
        more = np.asarray(self._marked.get(curve, []), dtype=np.float32).reshape(-1, 2)
        steps, values = np.concatenate([steps, more[:, 0]]), np.concatenate([values, more[:, 1]])
        order = np.lexsort((values, steps))
        steps, values = steps[order], values[order]
        is_same = (steps[1:] == steps[:-1]) & ((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1])))
        is_new = np.concatenate([[True], ~is_same]) if len(steps) else slice(None)
        return steps[is_new], values[is_new]

    def _put(self, is_into_last: bool, value_3BC: Any, step_3BC: Any) -> None:
        """Add buckets, or what belongs into the newest."""
        at = slice(self._num_buckets - 1, self._num_buckets)
        if is_into_last:
            value_3BC, step_3BC = _combined(self._value_3BC[:, at], self._step_3BC[:, at], value_3BC, step_3BC)
        else:
            at = slice(self._num_buckets, self._num_buckets + step_3BC.shape[1])
            while at.stop > self._value_3BC.shape[1]:
                self._grow()
            self._num_buckets = at.stop
        self._value_3BC[:, at], self._step_3BC[:, at] = value_3BC, step_3BC

    def _grow(self) -> None:
        room = np.full_like(self._value_3BC, np.nan)
        self._value_3BC = np.concatenate([self._value_3BC, room], axis=1)[:, : self._max]
        self._step_3BC = np.concatenate([self._step_3BC, room], axis=1)[:, : self._max]

    def _merge(self) -> None:
        """Make one bucket of every two."""
        value, step, half = self._value_3BC, self._step_3BC, self._num_buckets // 2
        value[:, :half], step[:, :half] = _combined(value[:, 0::2], step[:, 0::2], value[:, 1::2], step[:, 1::2])
        self._num_buckets = half
        self._per_bucket *= 2
        self._in_last = self._per_bucket


def _reduced(steps_N: Any, values_NC: Any, seen_NC: Any, num_buckets: int) -> tuple[Any, Any]:
    """(values, steps) [3, B, C] of observations that are shared out evenly."""
    shape_BWC = num_buckets, len(steps_N) // num_buckets, values_NC.shape[1]
    steps_BW = steps_N.reshape(shape_BWC[:2])
    values_BWC, seen_BWC = values_NC.reshape(shape_BWC), np.asarray(seen_NC).reshape(shape_BWC)
    is_finite_BWC = np.isfinite(values_BWC)
    is_good_BWC, is_bad_BWC = seen_BWC & is_finite_BWC, seen_BWC & ~is_finite_BWC
    at_3BC = np.stack([
        np.where(is_good_BWC, values_BWC, np.inf).argmin(axis=1), np.where(is_good_BWC, values_BWC, -np.inf).argmax(axis=1),
        is_bad_BWC.argmax(axis=1),
    ])
    has_good_BC = is_good_BWC.any(axis=1)
    has_3BC = np.stack([has_good_BC, has_good_BC, is_bad_BWC.any(axis=1)])
    value_3BC = np.take_along_axis(values_BWC[None], at_3BC[:, :, None], axis=2)[:, :, 0]
    step_3BC = steps_BW[np.arange(num_buckets)[None, :, None], at_3BC]
    return np.where(has_3BC, value_3BC, np.float32(np.nan)), np.where(has_3BC, step_3BC, np.float32(np.nan))


def _combined(value_3BC: Any, step_3BC: Any, later_value_3BC: Any, later_step_3BC: Any) -> tuple[Any, Any]:
    """Of two buckets each: the smaller, the larger, the first that is not finite."""
    with np.errstate(invalid="ignore"):
        is_beyond_3BC = np.stack([
            later_value_3BC[_LOW] < value_3BC[_LOW], later_value_3BC[_HIGH] > value_3BC[_HIGH], np.zeros(value_3BC.shape[1:], dtype=bool),
        ])
    takes_later_3BC = ~np.isnan(later_step_3BC) & (np.isnan(step_3BC) | is_beyond_3BC)
    return np.where(takes_later_3BC, later_value_3BC, value_3BC), np.where(takes_later_3BC, later_step_3BC, step_3BC)


def packed(values: Any) -> "array.array[float]":
    """As the recording stores it, so that writing is a copy of memory."""
    floats = array.array("f")
    floats.frombytes(np.ascontiguousarray(values, dtype=np.float32).tobytes())
    return floats
