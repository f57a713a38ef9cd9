"""Collectives that nobody waits for: a rank takes part only once all have promised to, and a promise can be taken back until then."""

import datetime
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

GROUP_SECONDS = 60      # a rank that has promised comes at once, unless it was killed
OFF = -(1 << 40)        # what a count of promises becomes when one is taken back: no promise after it brings it up again


class Meeting:
    """Of `size` ranks, this one with the number `place`, over a store that all of them see. Used by one thread.

    The group is gloo's own and not known to torch.distributed: to make one with new_group() would wait for every rank of the program, and
    a rank that makes one alone would have other names for its later groups than the rest.
    """

    def __init__(self, store: Any, place: int, size: int) -> None:
        self._store, self._place, self._size = store, place, size
        self._group: Any = None

    def promise(self, what: str) -> None:
        self._store.add(what, 1)

    def is_on(self, what: str) -> bool:
        """Whether all have promised; then this one must come, and all do."""
        return bool(self._store.add(what, 0) == self._size)

    def take_back(self, what: str) -> bool:
        """False if all have promised already."""
        while True:
            count = self._store.add(what, 0)
            if count == self._size:
                return False
            if count < 0 or int(self._store.compare_set(what, str(count), str(OFF))) < 0:
                return True

    def forget(self, what: str) -> None:
        """No rank will ask for it any more."""
        self._store.delete_key(what)

    def largest(self, values: Any) -> Any:
        return self._reduced(values, dist.ReduceOp.MAX)

    def sum(self, values: Any) -> Any:
        return self._reduced(values, dist.ReduceOp.SUM)

    def _reduced(self, values: Any, op: Any) -> Any:
        if self._group is None:
            self._group = dist.ProcessGroupGloo(self._store, self._place, self._size, datetime.timedelta(seconds=GROUP_SECONDS))
        packed = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64).reshape(-1).copy())
        options = dist.AllreduceOptions()
        options.reduceOp = op
        self._group.allreduce([packed], options).wait()
        return packed.numpy().reshape(values.shape)
