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

MAX_BUCKETS = 512           # per curve of a tensor; 300 tensors with 9 quantities need at most 35 MB
MAX_MARKED = 64             # points per curve that are kept unconditionally, the first ones
_LOW, _HIGH, _BAD = range(3)
TOTAL_BUCKETS = 2048        # per curve of a total, of which there are few
MAX_TOTALS = 1024           # names of totals; a program that invents a new name each step is not followed beyond this
MAX_WAITING = 20_000        # numbers that are added together: numpy costs as much for one as for a hundred
MIN_SECONDS = 5.0           # between two writes of all curves
REST = 1000.0               # the pause after a write, in durations of that write: telemetry uses 0.1 % of a processor
# For quantities other than norms, which are rarely present and vary little.
_EDGE_BUCKETS = MAX_BUCKETS // 4


class Curves:
    """Receives observations on one thread; another thread reads the series."""

    name = "recording"

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, work: Callable[[], float] = time.thread_time,
    ) -> None:
        """`work`: processor seconds of the calling thread."""
        self._clock, self._work = clock, work
        self._lock = threading.Lock()
        self._waiting: list[Observation] = []
        self._num_waiting = 0
        self._totals: dict[str, CurveBuckets] = {}
        self._tensors: dict[tuple[str, Sequence[str]], CurveBuckets] = {}    # by quantity and names of tensors
        self._next_time = float("-inf")
        self._began: float | None = None        # the start of the last write, by `work`
        self._is_closed = False
        self.on_work: Callable[[float], None] = lambda _: None      # receives the processor time of a write
        self.num_left_out = 0

    def write(self, observation: Observation) -> None:
        with self._lock:
            self._waiting.append(observation)
            self._num_waiting += len(observation.values) + len(observation.names)
            if self._num_waiting >= MAX_WAITING:
                self._take_in()

    def event(self, event: Event) -> None:
        """Keep the point at which a rule fired, however often its curve is down-sampled."""
        if not isinstance(event, Anomaly) or event.step is None:
            return
        with self._lock:
            self._take_in()
            if event.subject in self._totals:
                self._totals[event.subject].mark_last(0)
            for (_, names), buckets in self._tensors.items():
                if event.subject in names:
                    buckets.mark_last(names.index(event.subject))

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._take_in()     # the recorder reads the facts, `num_left_out` among them, before the series

    def series(self) -> list[Series]:
        """All curves if it is time to write them again, otherwise none; always all after `close`."""
        if self._began is not None:     # since then this thread has written the curves that it received
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

    def totals(self) -> set[str]:
        """The names of the series of totals."""
        with self._lock:
            self._take_in()
            return set(self._totals)

    def _all(self) -> Iterable[Series]:
        for name, buckets in self._totals.items():
            for steps, values in buckets.points():
                yield Series(name=name, steps=steps, values=values)
        for (quantity, names), buckets in self._tensors.items():
            for name, (steps, values) in zip(names, buckets.points(), strict=True):
                if len(steps):
                    yield Series(name=f"{quantity}/{name}", steps=steps, values=values)

    def _take_in(self) -> None:
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for observation in waiting:
            for name, value in observation.values.items():
                points[name].append((observation.step, value))
        for name, new_points in points.items():
            self._put_total(name, new_points)
        rows: dict[tuple[str, Sequence[str]], list[tuple[int, Any, Any]]] = defaultdict(list)
        for observation in waiting:
            for quantity, (values_P, valid_P) in observation.columns.items():
                rows[quantity, observation.names].append((observation.step, values_P, valid_P))
        for key, new_rows in rows.items():
            if key not in self._tensors:
                max_buckets = MAX_BUCKETS if key[0] in (GRAD_NORM, WEIGHT_NORM) else _EDGE_BUCKETS
                self._tensors[key] = CurveBuckets(len(key[1]), max_buckets)
            steps_N, values_NP, valid_NP = zip(*new_rows, strict=True)
            self._tensors[key].add(steps_N, np.stack(values_NP), np.stack(valid_NP))

    def _put_total(self, name: str, points: Sequence[tuple[int, float]]) -> None:
        buckets = self._totals.get(name)
        if buckets is None:
            if len(self._totals) >= MAX_TOTALS:
                self.num_left_out += len(points)
                return
            buckets = self._totals[name] = CurveBuckets(1, TOTAL_BUCKETS)
        steps_N, values_N = np.array(points, dtype=np.float64).T
        buckets.add(steps_N, values_N[:, None], np.ones((len(points), 1), dtype=bool))


class CurveBuckets:
    """Curves that share their steps.

    Each observation is kept until there are too many; then neighbours share a bucket.
    """

    def __init__(self, num_curves: int, max_buckets: int = MAX_BUCKETS) -> None:
        if max_buckets < 2 or max_buckets % 2:
            raise ValueError(f"max_buckets must be even and at least 2, got {max_buckets}")
        self._max = max_buckets
        # For each bucket and curve: the smallest and the largest finite value, and the first non-finite one. A NaN step
        # means that there is none. Memory is allocated for few buckets at first, because most runs are short.
        self._value_3BC: Any = np.full((3, min(16, max_buckets), num_curves), np.nan, dtype=np.float32)
        self._step_3BC: Any = self._value_3BC.copy()
        self._marked: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._num_buckets = 0
        self._per_bucket = 1
        self._in_last = 1       # observations in the newest bucket; without a bucket it counts as full
        self._newest: tuple[float, Any, Any] | None = None
        self._is_in_order = True

    def add(self, steps_N: Any, values_NC: Any, valid_NC: Any) -> None:
        """Add observations in order; `valid_NC`: which curves have a value in each of them."""
        steps_N = np.asarray(steps_N, dtype=np.float32)
        with np.errstate(over="ignore"):
            values_NC = np.asarray(values_NC).astype(np.float32)        # float32 overflows to Inf
        before = self._newest[0] if self._newest is not None else steps_N[0]
        self._is_in_order &= bool(before <= steps_N[0] and (steps_N[:-1] <= steps_N[1:]).all())
        self._newest = float(steps_N[-1]), values_NC[-1], valid_NC[-1]
        start, end = 0, len(steps_N)
        while start < end:
            room = self._per_bucket - self._in_last
            if not room and self._num_buckets == self._max:
                self._merge()
                continue
            num_full = 0        # new buckets that are filled completely
            if not room:
                num_full = min((end - start) // self._per_bucket, self._max - self._num_buckets)
            width = room or self._per_bucket
            num = num_full * width or min(width, end - start)
            part = slice(start, start + num)
            buckets = _reduced(steps_N[part], values_NC[part], valid_NC[part], num_buckets=max(1, num_full))
            self._put(room > 0, *buckets)
            self._in_last = (self._in_last if room else 0) + num // max(1, num_full)
            start += num

    def mark_last(self, curve: int) -> None:
        """Keep the newest point of a curve permanently."""
        if self._newest is not None and self._newest[2][curve] and len(self._marked[curve]) < MAX_MARKED:
            step, values_C, _ = self._newest
            self._marked[curve].append((step, float(values_C[curve])))

    def points(self) -> Iterator[tuple[Any, Any]]:
        """(steps, values) of each curve, as float32 arrays in the order of steps."""
        steps_CB3 = self._step_3BC[:, : self._num_buckets].T
        values_CB3 = self._value_3BC[:, : self._num_buckets].T
        order_CB3 = np.argsort(steps_CB3, axis=-1, kind="stable")
        steps_CB3 = np.take_along_axis(steps_CB3, order_CB3, axis=-1)
        values_CB3 = np.take_along_axis(values_CB3, order_CB3, axis=-1)
        is_kept_CB3 = ~np.isnan(steps_CB3)
        # A bucket with one observation has it as the smallest and as the largest value.
        is_new_step_CB3 = steps_CB3[..., 1:] != steps_CB3[..., :-1]
        is_kept_CB3[..., 1:] &= is_new_step_CB3 | (values_CB3[..., 1:] != values_CB3[..., :-1])
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
        are_both_nan = np.isnan(values[1:]) & np.isnan(values[:-1])
        is_same = (steps[1:] == steps[:-1]) & ((values[1:] == values[:-1]) | are_both_nan)
        is_new = np.concatenate([[True], ~is_same]) if len(steps) else slice(None)
        return steps[is_new], values[is_new]

    def _put(self, is_into_last: bool, value_3BC: Any, step_3BC: Any) -> None:
        """Add buckets, or merge one into the newest bucket."""
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
        """Merge every two buckets into one."""
        value, step, half = self._value_3BC, self._step_3BC, self._num_buckets // 2
        value[:, :half], step[:, :half] = _combined(value[:, 0::2], step[:, 0::2], value[:, 1::2], step[:, 1::2])
        self._num_buckets = half
        self._per_bucket *= 2
        self._in_last = self._per_bucket


def _reduced(steps_N: Any, values_NC: Any, valid_NC: Any, num_buckets: int) -> tuple[Any, Any]:
    """(values, steps) [3, B, C] of observations that are divided evenly into buckets."""
    shape_BWC = num_buckets, len(steps_N) // num_buckets, values_NC.shape[1]
    steps_BW = steps_N.reshape(shape_BWC[:2])
    values_BWC, valid_BWC = values_NC.reshape(shape_BWC), np.asarray(valid_NC).reshape(shape_BWC)
    is_finite_BWC = np.isfinite(values_BWC)
    is_good_BWC, is_bad_BWC = valid_BWC & is_finite_BWC, valid_BWC & ~is_finite_BWC
    at_3BC = np.stack([
        np.where(is_good_BWC, values_BWC, np.inf).argmin(axis=1),
        np.where(is_good_BWC, values_BWC, -np.inf).argmax(axis=1),
        is_bad_BWC.argmax(axis=1),
    ])
    has_good_BC = is_good_BWC.any(axis=1)
    has_3BC = np.stack([has_good_BC, has_good_BC, is_bad_BWC.any(axis=1)])
    value_3BC = np.take_along_axis(values_BWC[None], at_3BC[:, :, None], axis=2)[:, :, 0]
    step_3BC = steps_BW[np.arange(num_buckets)[None, :, None], at_3BC]
    return np.where(has_3BC, value_3BC, np.float32(np.nan)), np.where(has_3BC, step_3BC, np.float32(np.nan))


def _combined(value_3BC: Any, step_3BC: Any, later_value_3BC: Any, later_step_3BC: Any) -> tuple[Any, Any]:
    """Merge pairs of buckets: the smaller value, the larger value, the first non-finite one."""
    with np.errstate(invalid="ignore"):
        is_beyond_3BC = np.stack([
            later_value_3BC[_LOW] < value_3BC[_LOW],
            later_value_3BC[_HIGH] > value_3BC[_HIGH],
            np.zeros(value_3BC.shape[1:], dtype=bool),
        ])
    is_later_3BC = ~np.isnan(later_step_3BC) & (np.isnan(step_3BC) | is_beyond_3BC)
    value_3BC = np.where(is_later_3BC, later_value_3BC, value_3BC)
    return value_3BC, np.where(is_later_3BC, later_step_3BC, step_3BC)


def packed(values: Any) -> "array.array[float]":
    """The values in the form that the recording stores, so that writing only copies memory."""
    floats = array.array("f")
    floats.frombytes(np.ascontiguousarray(values, dtype=np.float32).tobytes())
    return floats
