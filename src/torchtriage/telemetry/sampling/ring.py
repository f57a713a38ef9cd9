"""Rows of numbers that the training writes and the background thread reads: preallocated, no lock, no host sync on the step path.

K slots, W numbers a row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

MAX_SLOTS = 256
MIN_SLOTS = 4
MAX_BYTES = 8 << 20     # of a ring, unless a single row is large


class Arrival(Protocol):
    """Tells whether a copy from a device has arrived: torch.Event, or a stand-in."""

    def record(self) -> None: ...
    def query(self) -> bool: ...


def device_event(device: torch.device) -> Arrival:
    event: Arrival = torch.Event(device)
    return event


class Ring:
    """One writer, one reader. A row of a device is copied into pinned memory without waiting, and read once its event says it is there."""

    def __init__(
        self, width: int, devices: Sequence[torch.device] = (), num_slots: int | None = None,
        new_event: Callable[[torch.device], Arrival] = device_event, pin: bool | None = None,
    ) -> None:
        """`devices`: those beside the CPU that rows are filled from."""
        self.num_slots = num_slots or max(MIN_SLOTS, min(MAX_SLOTS, MAX_BYTES // (8 * max(1, width))))
        self.devices = tuple(devices)
        is_pinned = any(device.type == "cuda" for device in devices) if pin is None else pin
        self.host_KW = torch.zeros(self.num_slots, width, dtype=torch.float64, device="cpu", pin_memory=is_pinned)
        self._array_KW = self.host_KW.numpy()
        self._address: int = self.host_KW.data_ptr()
        self._row_bytes = 8 * width
        self._labels: list[Any] = [None] * self.num_slots
        self._events = [[new_event(device) for device in self.devices] for _ in range(self.num_slots)]
        self._num_written = 0
        self._num_read = 0
        self.num_dropped = 0

    def claim(self) -> int | None:
        """The slot to write next; None, and counted, if the reader is behind by a whole ring."""
        if self._num_written - self._num_read >= self.num_slots:
            self.num_dropped += 1
            return None
        return self._num_written % self.num_slots

    @property
    def is_filling(self) -> bool:
        """Whether the reader had better come."""
        return 2 * (self._num_written - self._num_read) > self.num_slots

    def array(self, slot: int) -> Any:
        """The slot as a numpy row."""
        return self._array_KW[slot]

    def address(self, slot: int, column: int) -> int:
        """Of a number in host memory."""
        return self._address + slot * self._row_bytes + 8 * column

    def commit(self, slot: int, label: Any) -> None:
        """The row is complete, or on its way from the devices; `label` comes out with it."""
        for event in self._events[slot]:
            event.record()
        self._labels[slot] = label
        self._num_written += 1      # last: from here on the reader may look

    def drain(self, wait: bool = False) -> Iterator[tuple[Any, Any]]:
        """(row, label) of all that has arrived, in order; a row is valid until the next is asked for. `wait`: also what is on its way."""
        while self._num_read < self._num_written:
            slot = self._num_read % self.num_slots
            for event in self._events[slot]:
                if not event.query():
                    if not wait:
                        return
                    event.synchronize()  # type: ignore[attr-defined]
            label, self._labels[slot] = self._labels[slot], None
            try:
                yield self._array_KW[slot], label
            finally:
                self._num_read += 1
