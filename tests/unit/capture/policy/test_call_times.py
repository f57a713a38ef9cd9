"""Outermost calls are timed one by one, by function, thread by thread."""

import threading
import time
from collections.abc import Callable

import pytest

from torchtriage.capture.policy import call_times
from torchtriage.capture.policy.call_times import CallTimes
from torchtriage.recording.events import CompileCall


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(time, "time", lambda: 1000.0 + clock.now)
    return clock


def function(times: CallTimes, target: str, line: int = 1) -> Callable[[], Callable[[], None]]:
    enter = times.timer(CompileCall(path="/a.py", line=line, target=target))
    assert enter is not None
    return enter


def values(times: CallTimes) -> dict[str, list[float]]:
    return {series.name: list(series.values) for series in times.series()}


def test_calls_are_timed_in_the_order_of_the_first_call(clock: Clock) -> None:
    times = CallTimes()
    f, g = function(times, "f"), function(times, "g", line=2)
    for enter, seconds in ((g, 4.0), (f, 1.0), (f, 2.0)):
        leave = enter()
        clock.now += seconds
        leave()
    g_row = {"path": "/a.py", "line": 2, "target": "g", "num_calls": 1}
    f_row = {"path": "/a.py", "line": 1, "target": "f", "num_calls": 2}
    assert times.facts() == {"functions": [g_row, f_row], "first_call_time": 1000.0, "first_call_seconds": 4.0}
    assert values(times) == {
        "call_seconds/0": [4.0], "call_compiles/0": [0.0], "call_seconds/1": [1.0, 2.0], "call_compiles/1": [0.0, 0.0],
    }


def test_compiles_belong_to_the_call_they_began_in(clock: Clock) -> None:
    times = CallTimes()
    f = function(times, "f")
    times.count_compile()       # by backward, between calls
    for num_compiles in (2, 0, 1):
        leave = f()
        for _ in range(num_compiles):
            times.count_compile()
        leave()
    assert values(times)["call_compiles/0"] == [2.0, 0.0, 1.0]


def test_a_call_within_a_call_is_part_of_it(clock: Clock) -> None:
    times = CallTimes()
    f, g = function(times, "f"), function(times, "g")
    leave = f()
    inner = g()
    clock.now += 3.0
    inner()
    clock.now += 1.0
    leave()
    assert [row["target"] for row in times.facts()["functions"]] == ["f"]
    assert values(times)["call_seconds/0"] == [4.0]


def test_threads_do_not_see_each_others_calls_or_compiles(clock: Clock) -> None:
    times = CallTimes()
    f, g = function(times, "f"), function(times, "g")
    leave = f()

    def other() -> None:
        inner = g()
        times.count_compile()
        inner()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    leave()
    assert values(times) == {
        "call_seconds/0": [0.0], "call_compiles/0": [0.0], "call_seconds/1": [0.0], "call_compiles/1": [1.0],
    }


def test_several_objects_compiled_at_one_place_are_one_function(clock: Clock) -> None:
    times = CallTimes()
    for _ in range(3):
        function(times, "Layer.forward")()()
    assert [row["num_calls"] for row in times.facts()["functions"]] == [3]


def test_a_series_is_given_only_when_there_is_news_and_then_whole(clock: Clock) -> None:
    times = CallTimes()
    f = function(times, "f")
    f()()
    assert len(times.series()) == 2
    assert times.series() == []
    f()()
    assert [len(series.values) for series in times.series()] == [2, 2]
    assert times.facts()["functions"][0]["num_calls"] == 2


def test_a_function_that_was_never_called_is_not_listed(clock: Clock) -> None:
    times = CallTimes()
    function(times, "f")
    assert times.facts() == {"functions": [], "first_call_time": None, "first_call_seconds": None}


def test_memory_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_times, "MAX_POINTS", 4)
    monkeypatch.setattr(call_times, "MAX_FUNCTIONS", 1)
    times = CallTimes()
    f = function(times, "f")
    assert times.timer(CompileCall(target="g")) is None
    for _ in range(9):
        f()()
    (seconds, _) = times.series()
    assert list(seconds.steps) == [1, 5, 9]


def test_a_forked_child_counts_from_nothing(clock: Clock) -> None:
    times = CallTimes()
    f = function(times, "f")
    f()()
    f()         # the fork happens within a call
    times.start_over()
    assert times.facts()["functions"] == []
    f()()
    assert values(times) == {"call_seconds/0": [0.0], "call_compiles/0": [0.0]}
