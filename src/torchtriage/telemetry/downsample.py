"""Many curves in bounded memory: what was smallest, largest and not finite in each stretch of steps stays, as does every marked point.

B buckets, C curves.
"""

import array
from collections import defaultdict
from typing import Any

import numpy as np

MAX_BUCKETS = 512       # of a tensor's curve; 300 tensors of 9 quantities stay below 35 MB even if every bucket holds all it can
MAX_MARKED = 64         # points of a curve that are kept whatever they are, the first ones
_LOW, _HIGH, _BAD = range(3)


class Thinned:
    """Curves that are all observed at the same steps. Up to MAX_BUCKETS observations each is kept; beyond, neighbours share a bucket."""

    def __init__(self, num_curves: int, max_buckets: int = MAX_BUCKETS) -> None:
        if max_buckets < 2 or max_buckets % 2:
            raise ValueError(f"max_buckets must be even and at least 2, got {max_buckets}")
        self._max = max_buckets
        self._size = min(16, max_buckets)       # buckets there is memory for; most runs are short
        # For each bucket and curve the smallest and largest finite value and the first that is not finite; NaN steps: none.
        self._value_3BC: Any = np.full((3, self._size, num_curves), np.nan, dtype=np.float32)
        self._step_3BC: Any = np.full((3, self._size, num_curves), np.nan, dtype=np.float32)
        self._marked: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._num_buckets = 0
        self._in_last = 0       # observations in the newest bucket
        self._per_bucket = 1
        self._newest: tuple[float, Any, Any] | None = None
        self.num_observed = 0

    def add(self, step: float, values_C: Any, seen_C: Any) -> None:
        """One observation of those curves that were seen at it."""
        if self._num_buckets == 0 or self._in_last == self._per_bucket:
            self._open_bucket()
        self._in_last += 1
        self.num_observed += 1
        last = self._num_buckets - 1
        values_C = np.asarray(values_C).astype(np.float32)      # overflow to Inf is what float32 makes of it
        self._newest = step, values_C, seen_C
        finite_C = np.isfinite(values_C)
        low_C, high_C = self._value_3BC[_LOW, last], self._value_3BC[_HIGH, last]
        with np.errstate(invalid="ignore"):
            self._put(_LOW, last, step, values_C, seen_C & finite_C & ~(values_C >= low_C))
            self._put(_HIGH, last, step, values_C, seen_C & finite_C & ~(values_C <= high_C))
        self._put(_BAD, last, step, values_C, seen_C & ~finite_C & np.isnan(self._step_3BC[_BAD, last]))

    def mark_last(self, curve: int) -> None:
        """Keep the newest point of a curve for good."""
        if self._newest is not None and self._newest[2][curve] and len(self._marked[curve]) < MAX_MARKED:
            step, values_C, _ = self._newest
            self._marked[curve].append((step, float(values_C[curve])))

    def points(self, curve: int) -> tuple[Any, Any]:
        """(steps, values), as float32 arrays in the order of steps."""
        steps = self._step_3BC[:, : self._num_buckets, curve].ravel()
        values = self._value_3BC[:, : self._num_buckets, curve].ravel()
        if curve in self._marked:
            more = np.asarray(self._marked[curve], dtype=np.float32)
            steps, values = np.concatenate([steps, more[:, 0]]), np.concatenate([values, more[:, 1]])
        known = ~np.isnan(steps)
        steps, values = steps[known], values[known]
        order = np.lexsort((values, steps))
        steps, values = steps[order], values[order]
        if len(steps):      # a bucket of one observation has it as smallest and as largest
            is_new = (steps[1:] != steps[:-1]) | ((values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1])))
            kept = np.concatenate([[True], is_new])
            steps, values = steps[kept], values[kept]
        return packed(steps), packed(values)

    def _put(self, kind: int, bucket: int, step: float, values_C: Any, where_C: Any) -> None:
        if where_C.any():
            self._value_3BC[kind, bucket, where_C] = values_C[where_C]
            self._step_3BC[kind, bucket, where_C] = step

    def _open_bucket(self) -> None:
        if self._num_buckets == self._max:
            self._merge()
        elif self._num_buckets == self._size:
            self._grow()
        self._num_buckets += 1
        self._in_last = 0

    def _grow(self) -> None:
        room = np.full_like(self._value_3BC, np.nan)
        self._value_3BC = np.concatenate([self._value_3BC, room], axis=1)[:, : self._max]
        self._step_3BC = np.concatenate([self._step_3BC, room], axis=1)[:, : self._max]
        self._size = self._value_3BC.shape[1]

    def _merge(self) -> None:
        """Make one bucket of every two."""
        values, steps = self._value_3BC, self._step_3BC
        half = self._num_buckets // 2
        with np.errstate(invalid="ignore"):
            for kind in (_LOW, _HIGH, _BAD):
                first, second = values[kind, 0::2], values[kind, 1::2]
                has_first, has_second = ~np.isnan(steps[kind, 0::2]), ~np.isnan(steps[kind, 1::2])
                beyond = {_LOW: second < first, _HIGH: second > first, _BAD: np.zeros_like(has_first)}[kind]
                takes_second = has_second & (~has_first | beyond)
                values[kind, :half] = np.where(takes_second, second, first)
                steps[kind, :half] = np.where(takes_second, steps[kind, 1::2], steps[kind, 0::2])
        values[:, half:] = np.nan
        steps[:, half:] = np.nan
        self._num_buckets, self._per_bucket = half, 2 * self._per_bucket


def packed(values: Any) -> "array.array[float]":
    """As the recording stores it, so that writing is a copy of memory."""
    floats = array.array("f")
    floats.frombytes(np.ascontiguousarray(values, dtype=np.float32).tobytes())
    return floats

