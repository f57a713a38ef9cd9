"""A clock that is paused with its process."""

import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from torchtriage.capture.machine import NUM_BYTES, ActiveClock, Clock


def pause_file(folder: Path, seconds: float) -> tuple[Path, Callable[[float], None]]:
    """A file with these seconds in it, and what changes them."""
    path = folder / "paused"
    path.write_bytes(struct.pack("d", seconds))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), NUM_BYTES)

    def change(to: float) -> None:
        shared[:] = struct.pack("d", to)

    return path, change


def test_a_clock_is_the_time_that_passes() -> None:
    assert (Clock().now, Clock().since_epoch) == (time.perf_counter, time.time)


def test_what_the_process_stood_still_is_taken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    monkeypatch.setattr(time, "time", lambda: 5000.0)
    path, change = pause_file(tmp_path, 0.0)
    clock = ActiveClock(str(path))
    assert (clock.now(), clock.since_epoch()) == (100.0, 5000.0)
    change(30.0)
    assert (clock.now(), clock.since_epoch()) == (70.0, 4970.0)


def test_a_stop_between_two_readings_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, change = pause_file(tmp_path, 0.0)
    readings = iter([100.0, 130.0])

    def stopped_before_the_first() -> float:
        change(30.0)
        return next(readings)

    monkeypatch.setattr(time, "perf_counter", stopped_before_the_first)
    assert ActiveClock(str(path)).now() == 100.0       # of the second reading, 130, less the 30


def test_without_its_file_there_is_no_such_clock(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="paused"):
        ActiveClock(str(tmp_path / "paused"))
