"""The ring is written without waiting, and rows are read once they have arrived."""

import pytest
import torch

from torchtriage.telemetry.sampling.ring import Ring


class Copy:
    """Stands in for the event behind a copy from a device."""

    def __init__(self) -> None:
        self.is_recorded = self.has_arrived = False

    def record(self) -> None:
        self.is_recorded, self.has_arrived = True, False

    def query(self) -> bool:
        return self.has_arrived

    def synchronize(self) -> None:
        self.has_arrived = True


def put(ring: Ring, *values: float) -> None:
    for value in values:
        slot = ring.claim()
        assert slot is not None
        ring.array(slot)[:] = value
        ring.commit(slot, f"row {value:g}")


def drained(ring: Ring, wait: bool = False) -> list[tuple[list[float], str]]:
    return [(row.tolist(), label) for row, label in ring.drain(wait)]


def test_rows_are_read_once_and_in_order() -> None:
    ring = Ring(2, num_slots=4)
    put(ring, 1, 2, 3)
    assert drained(ring) == [([1, 1], "row 1"), ([2, 2], "row 2"), ([3, 3], "row 3")]
    put(ring, 4, 5, 6, 7)
    assert [label for _, label in drained(ring)] == ["row 4", "row 5", "row 6", "row 7"]
    assert drained(ring) == []


def test_a_full_ring_drops_the_new_and_counts_it() -> None:
    ring = Ring(1, num_slots=2)
    put(ring, 1, 2)
    assert ring.claim() is None
    assert ring.claim() is None
    assert ring.num_dropped == 2
    assert [label for _, label in drained(ring)] == ["row 1", "row 2"]
    assert ring.claim() is not None


def test_ring_is_filling_when_more_than_half_is_unread() -> None:
    ring, filling = Ring(2, num_slots=4), []
    for step in range(3):
        slot = ring.claim()
        assert slot is not None
        ring.commit(slot, step)
        filling.append(ring.is_filling)
    assert filling == [False, False, True]
    list(ring.drain())
    assert not ring.is_filling


def test_row_from_a_device_is_read_only_after_it_arrived() -> None:
    copies: list[Copy] = []

    def new(device: torch.device) -> Copy:
        copies.append(Copy())
        return copies[-1]

    ring = Ring(1, devices=[torch.device("meta")], num_slots=3, new_event=new, pin=False)
    put(ring, 1, 2)
    assert all(copy.is_recorded for copy in copies[:2])
    assert drained(ring) == []
    copies[1].has_arrived = True
    assert drained(ring) == []      # the second may not overtake the first
    copies[0].has_arrived = True
    assert [label for _, label in drained(ring)] == ["row 1", "row 2"]
    put(ring, 3, 4)
    assert [label for _, label in drained(ring, wait=True)] == ["row 3", "row 4"]


def test_row_on_which_the_reader_fails_is_not_read_again() -> None:
    ring = Ring(1, num_slots=2)
    put(ring, 1, 2)
    reading = ring.drain()
    next(reading)
    with pytest.raises(ZeroDivisionError):
        reading.throw(ZeroDivisionError)
    assert [label for _, label in drained(ring)] == ["row 2"]


def test_memory_is_allocated_once() -> None:
    ring = Ring(3, num_slots=2)
    address = ring.host_KW.data_ptr()
    for value in range(10):
        put(ring, value)
        drained(ring)
    assert ring.host_KW.data_ptr() == address == ring.array(0).ctypes.data


def test_a_wide_row_takes_few_slots_and_a_narrow_one_many() -> None:
    assert Ring(300 * 36).num_slots < 128
    assert Ring(10).num_slots == 256
    assert Ring(10_000_000).num_slots == 4
