"""Times every outermost call of a compiled function, with the number of compiles that start within it."""

import collections
import threading
from collections.abc import Callable
from typing import Any

from torchtriage.capture.machine import Clock
from torchtriage.recording.bounded_series import MeanSeries
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Series
from torchtriage.recording.series import CALL_COMPILES, CALL_SECONDS, series_of

MAX_POINTS = 4096       # per series of a function
MAX_FUNCTIONS = 256     # with their own series: compile call sites and their targets

Place = tuple[str, int | None, str]


class _Thread(threading.local):
    """The state of one thread: whether it is inside a compiled call, and the number of its compiles."""

    is_inside = False
    num_compiles = 0


class _Function:
    """The calls of one compiled function: those waiting for the recorder's thread, and the series of earlier ones."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.start_over()

    def start_over(self) -> None:
        self.is_listed = False
        self.waiting: collections.deque[tuple[float, int]] = collections.deque()
        self.num_recorded = 0
        self.seconds = MeanSeries(MAX_POINTS)
        self.compiles = MeanSeries(MAX_POINTS)

    def record_waiting(self) -> bool:
        """Move the waiting calls to the series; whether there were any. Called only on the recorder's thread."""
        num_calls = len(self.waiting)
        for _ in range(num_calls):
            seconds, num_compiles = self.waiting.popleft()
            self.seconds.add(seconds)
            self.compiles.add(num_compiles)
        self.num_recorded += num_calls
        return num_calls > 0


class CallTimes:
    """Functions in the order of their first call; a compiled call within another one is part of the outer call."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._by_place: dict[Place, _Function] = {}
        self._called: list[_Function] = []
        self._thread = _Thread()
        self._first: tuple[float, float | None] | None = None      # when the first call began, and how long it took

    def timer(self, call: CompileCall) -> Callable[[], Callable[[], None]] | None:
        """A function to run on entering the compiled function, which returns the one to run on leaving.

        None beyond MAX_FUNCTIONS.
        """
        place = (call.path, call.line, call.target)
        function = self._by_place.get(place)
        if function is None:
            if len(self._by_place) >= MAX_FUNCTIONS:
                return None
            function = self._by_place[place] = _Function(place)
        return self._entering(function)

    def _entering(self, function: _Function) -> Callable[[], Callable[[], None]]:
        thread, clock = self._thread, self._clock.now

        def enter() -> Callable[[], None]:
            if thread.is_inside:
                return _nothing
            if not function.is_listed:
                self._begin(function)
            thread.is_inside = True
            num_before = thread.num_compiles
            start = clock()

            def leave() -> None:
                seconds = clock() - start
                thread.is_inside = False
                function.waiting.append((seconds, thread.num_compiles - num_before))
                if self._first is not None and self._first[1] is None:
                    self._first = (self._first[0], seconds)

            return leave

        return enter

    def count_compile(self) -> None:
        """Called when a compile starts on this thread."""
        self._thread.num_compiles += 1

    def facts(self) -> dict[str, Any]:
        keys = ("path", "line", "target", "num_calls")
        rows = [(*function.place, function.num_recorded + len(function.waiting)) for function in list(self._called)]
        began, seconds = self._first or (None, None)
        return {
            "functions": [dict(zip(keys, row, strict=True)) for row in rows],
            "first_call_time": began, "first_call_seconds": seconds,
        }

    def series(self) -> list[Series]:
        """The series of the functions that were called since the last time."""
        series = []
        for number, function in enumerate(list(self._called)):
            if function.record_waiting():
                series.append(function.seconds.series(series_of(CALL_SECONDS, str(number)), 1))
                series.append(function.compiles.series(series_of(CALL_COMPILES, str(number)), 1))
        return series

    def start_over(self) -> None:
        """A forked child counts its own calls of the functions it inherits."""
        self._called.clear()
        self._first = None
        self._thread.is_inside = False
        for function in self._by_place.values():
            function.start_over()

    def _begin(self, function: _Function) -> None:
        function.is_listed = True
        self._called.append(function)
        if self._first is None:
            self._first = (self._clock.since_epoch(), None)


def _nothing() -> None:
    """For leaving a call within another compiled call."""
