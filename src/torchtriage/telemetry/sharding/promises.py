"""Collectives without waiting: a rank joins one only after all ranks have promised to, or withdraws before that."""

import datetime
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

GROUP_SECONDS = 60      # a rank that has promised joins immediately, unless it was killed
OFF = -(1 << 40)        # the count of promises after one is taken back: later promises cannot make it complete


class Meeting:
    """A meeting of `size` ranks, of which this one has the number `place`, over a store they share. Used by one thread.

    The process group is a gloo group that torch.distributed does not know. new_group() would wait for every rank of the
    program, and a rank that calls it alone would give its later groups other names than the other ranks do.
    """

    def __init__(self, store: Any, place: int, size: int) -> None:
        self._store, self._place, self._size = store, place, size
        self._group: Any = None

    def promise(self, name: str) -> None:
        self._store.add(name, 1)

    def is_on(self, name: str) -> bool:
        """Whether all ranks have promised; then this one must join, as all do."""
        return bool(self._store.add(name, 0) == self._size)

    def take_back(self, name: str) -> bool:
        """Take the promise back; False if all ranks have promised already."""
        while True:
            count = self._store.add(name, 0)
            if count == self._size:
                return False
            if count < 0 or int(self._store.compare_set(name, str(count), str(OFF))) < 0:
                return True

    def forget(self, name: str) -> None:
        """Remove a name that no rank will ask for again."""
        self._store.delete_key(name)

    def largest(self, values: Any) -> Any:
        return self._reduced(values, dist.ReduceOp.MAX)

    def sum(self, values: Any) -> Any:
        return self._reduced(values, dist.ReduceOp.SUM)

    def _reduced(self, values: Any, op: Any) -> Any:
        if self._group is None:
            timeout = datetime.timedelta(seconds=GROUP_SECONDS)
            self._group = dist.ProcessGroupGloo(self._store, self._place, self._size, timeout)
        packed = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64).reshape(-1).copy())
        options = dist.AllreduceOptions()
        options.reduceOp = op
        self._group.allreduce([packed], options).wait()
        return packed.numpy().reshape(values.shape)
