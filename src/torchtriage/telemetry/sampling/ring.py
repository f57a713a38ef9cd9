"""Passes rows of numbers from the training to the background thread: preallocated, without locks or device waits.

K slots, W numbers per row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

MAX_SLOTS = 256
MIN_SLOTS = 4
MAX_BYTES = 8 << 20     # per ring, unless MIN_SLOTS rows need more


class Arrival(Protocol):
    """Shows whether a copy from a device has arrived: a torch.Event, or a substitute in tests."""

    def record(self) -> None: ...
    def query(self) -> bool: ...


def device_event(device: torch.device) -> Arrival:
    event: Arrival = torch.Event(device)
    return event


class Ring:
    """One writer, one reader.

    A row from a device is copied to pinned memory without waiting, and read once its event has occurred.
    """

    def __init__(
        self, width: int, devices: Sequence[torch.device] = (), num_slots: int | None = None,
        new_event: Callable[[torch.device], Arrival] = device_event, pin: bool | None = None,
    ) -> None:
        """`devices`: devices other than the CPU that fill rows."""
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
        """The slot to write next; None, counted as dropped, if the reader is an entire ring behind."""
        if self._num_written - self._num_read >= self.num_slots:
            self.num_dropped += 1
            return None
        return self._num_written % self.num_slots

    @property
    def is_filling(self) -> bool:
        """Whether the reader should empty the ring now."""
        return 2 * (self._num_written - self._num_read) > self.num_slots

    def array(self, slot: int) -> Any:
        """The slot as a numpy row."""
        return self._array_KW[slot]

    def address(self, slot: int, column: int) -> int:
        """The address of a number in host memory."""
        return self._address + slot * self._row_bytes + 8 * column

    def commit(self, slot: int, label: Any) -> None:
        """The row is complete, or is being copied from devices; `label` is returned with it."""
        for event in self._events[slot]:
            event.record()
        self._labels[slot] = label
        self._num_written += 1      # last: from here on the reader may use the row

    def drain(self, wait: bool = False) -> Iterator[tuple[Any, Any]]:
        """(row, label) of all rows that have arrived, in order. `wait`: also wait for rows that are being copied.

        A row is valid until the next one is requested.
        """
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
