"""Times every outermost call of a compiled function, and counts the compiles that began within it."""

import collections
import threading
from collections.abc import Callable
from typing import Any

from torchtriage.capture.machine import Clock
from torchtriage.recording.bounded_series import MeanSeries
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Series
from torchtriage.recording.series import CALL_COMPILES, CALL_SECONDS, series_of

MAX_POINTS = 4096       # of the series of one function
MAX_FUNCTIONS = 256     # with series of their own: compile call sites and their targets

Place = tuple[str, int | None, str]


class _Thread(threading.local):
    """Where one thread is: inside the outermost compiled call or not, and how often it has compiled."""

    is_inside = False
    num_compiles = 0


class _Function:
    """The calls of one compiled function: those that wait for the recorder's thread, and the series of all before."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.start_over()

    def start_over(self) -> None:
        self.is_known = False
        self.waiting: collections.deque[tuple[float, int]] = collections.deque()
        self.num_taken = 0
        self.seconds = MeanSeries(MAX_POINTS)
        self.compiles = MeanSeries(MAX_POINTS)

    def take(self) -> bool:
        """Whether there were calls since the last time; called on the recorder's thread only."""
        num_calls = len(self.waiting)
        for _ in range(num_calls):
            seconds, num_compiles = self.waiting.popleft()
            self.seconds.add(seconds)
            self.compiles.add(num_compiles)
        self.num_taken += num_calls
        return num_calls > 0


class CallTimes:
    """Functions in the order of their first call; a compiled function that runs inside another compiled call is part of that call."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._by_place: dict[Place, _Function] = {}
        self._called: list[_Function] = []
        self._thread = _Thread()
        self._first: tuple[float, float | None] | None = None      # when the first call began, and how long it took

    def timer(self, call: CompileCall) -> Callable[[], Callable[[], None]] | None:
        """What Dynamo shall run as it enters the compiled function; it returns what is run on leaving. None past the bound."""
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
            if not function.is_known:
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
        """A compile began on this thread."""
        self._thread.num_compiles += 1

    def facts(self) -> dict[str, Any]:
        keys = ("path", "line", "target", "num_calls")
        functions = [(*function.place, function.num_taken + len(function.waiting)) for function in list(self._called)]
        began, seconds = self._first or (None, None)
        return {
            "functions": [dict(zip(keys, row, strict=True)) for row in functions],
            "first_call_time": began, "first_call_seconds": seconds,
        }

    def series(self) -> list[Series]:
        """Of the functions that were called since the last time."""
        found = []
        for number, function in enumerate(list(self._called)):
            if function.take():
                found.append(function.seconds.series(series_of(CALL_SECONDS, str(number)), 1))
                found.append(function.compiles.series(series_of(CALL_COMPILES, str(number)), 1))
        return found

    def start_over(self) -> None:
        """A forked child counts its own calls of the functions it inherits."""
        self._called.clear()
        self._first = None
        self._thread.is_inside = False
        for function in self._by_place.values():
            function.start_over()

    def _begin(self, function: _Function) -> None:
        function.is_known = True
        self._called.append(function)
        if self._first is None:
            self._first = (self._clock.since_epoch(), None)


def _nothing() -> None:
    """A call within a call has nothing to say."""
