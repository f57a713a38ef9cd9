"""The times of pieces and of the gaps between them are summed per compile id, for each thread."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from torchtriage.capture.taps import piece_timer
from torchtriage.capture.taps.piece_timer import PieceTimer
from torchtriage.recording.events import GapTime, PieceTime


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(piece_timer.time, "perf_counter", clock)
    return clock


def piece(timer: PieceTimer, clock: Clock, compile_id: str, seconds: float) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        clock.now += seconds
        return sum(args)

    return timer.wrap(compile_id, run)


def test_the_result_of_a_piece_is_unchanged(clock: Clock) -> None:
    assert piece(PieceTimer(), clock, "0/0", 1.0)(2, 3) == 5


def test_pieces_and_gaps_are_summed(clock: Clock) -> None:
    timer = PieceTimer()
    first, second = piece(timer, clock, "0/0", 1.0), piece(timer, clock, "1/0", 2.0)
    for _ in range(3):
        first()
        clock.now += 0.25       # the gap at the break
        second()
        clock.now += 10.0       # the rest of the program
    assert list(timer.events(time=9.0, pid=1)) == [
        PieceTime(compile_id="0/0", calls=3, seconds=3.0, time=9.0, pid=1),
        PieceTime(compile_id="1/0", calls=3, seconds=6.0, time=9.0, pid=1),
        GapTime(compile_id="0/0", to_compile_id="1/0", calls=3, seconds=0.75, time=9.0, pid=1),
        GapTime(compile_id="1/0", to_compile_id="0/0", calls=2, seconds=20.0, time=9.0, pid=1),
    ]


def test_a_gap_with_a_compile_in_it_is_not_counted(clock: Clock) -> None:
    timer = PieceTimer()
    first, second = piece(timer, clock, "0/0", 1.0), piece(timer, clock, "1/0", 2.0)
    first()
    timer.num_compiles += 1
    clock.now += 30.0
    second()
    assert not [event for event in timer.events() if isinstance(event, GapTime)]


def test_a_piece_that_was_never_called_took_no_time(clock: Clock) -> None:
    timer = PieceTimer()
    piece(timer, clock, "0/0", 1.0)
    assert list(timer.events()) == [PieceTime(compile_id="0/0")]


def test_pieces_of_one_compile_share_one_sum(clock: Clock) -> None:
    timer = PieceTimer()
    piece(timer, clock, "0/0", 1.0)()
    piece(timer, clock, "0/0", 2.0)()
    assert next(timer.events()) == PieceTime(compile_id="0/0", calls=2, seconds=3.0)


def test_a_piece_that_raises_is_not_counted(clock: Clock) -> None:
    def run() -> None:
        raise KeyError("theirs")

    timer = PieceTimer()
    timed = timer.wrap("0/0", run)
    with pytest.raises(KeyError, match="theirs") as caught:
        timed()
    assert list(timer.events()) == [PieceTime(compile_id="0/0")]
    assert {str(entry.path) for entry in caught.traceback} == {__file__}


def test_gaps_are_measured_per_thread(clock: Clock) -> None:
    timer = PieceTimer()
    first, second = piece(timer, clock, "0/0", 1.0), piece(timer, clock, "1/0", 1.0)
    first()
    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    assert not [event for event in timer.events() if isinstance(event, GapTime)]


def test_starting_over_resets_the_sums_of_all_pieces(clock: Clock) -> None:
    timer = PieceTimer()
    first, second = piece(timer, clock, "0/0", 1.0), piece(timer, clock, "1/0", 2.0)
    first()
    second()
    timer.start_over()
    second()
    assert list(timer.events()) == [PieceTime(compile_id="0/0"), PieceTime(compile_id="1/0", calls=1, seconds=2.0)]
