"""`benchmark(fn, *args)`: what one call takes once it is steady, with compile time told apart and the noise of the machine shown."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import Interval
from torchtriage.shapes.functions.compiling import Compiles, device_name, name_of, synchronise, uncompiled
from torchtriage.shapes.verdict.statistics import median_interval
from torchtriage.text import duration, factor


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """One function: all observed."""

    name: str
    first_call_seconds: float
    num_compiles: int               # in the first call and the warm-up
    compile_seconds: float          # of them, by Dynamo's own clock
    num_warm_calls: int
    is_steady: bool                 # the warm-up ended because the time of a call no longer changed
    seconds: Interval               # one call
    ratio: Interval | None          # to the first function, block by block; None for the first itself
    num_blocks: int
    block_calls: int
    num_late_compiles: int = 0      # while it was measured

    @property
    def doubts(self) -> list[str]:
        """What keeps the figures from being what they seem."""
        found = []
        if not self.is_steady:
            found.append(f"{self.name} was not seen to be steady in {self.num_warm_calls:,} warm-up calls; give more seconds=")
        if self.num_late_compiles:
            found.append(f"{self.name} compiled {self.num_late_compiles} times while it was measured")
        if self.seconds.low is None:
            found.append(f"{self.name}: {self.num_blocks} blocks are too few for an interval; give more seconds=")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What `benchmark` returns; `timing.seconds` is the first function's, `timing["name"]` any other's row."""

    functions: Sequence[CallTiming]
    device: str = "cpu"

    @property
    def seconds(self) -> Interval:
        return self.functions[0].seconds

    def __getitem__(self, name: str) -> CallTiming:
        found = next((f for f in self.functions if f.name == name), None)
        if found is None:
            raise KeyError(f"{name} was not timed; there are {', '.join(f.name for f in self.functions)}")
        return found

    def __repr__(self) -> str:
        first = self.functions[0].name
        rows = [["", "first call", "compiling", "one call", "95 %", f"/ {first}", "95 %"], *(_cells(f) for f in self.functions)]
        if len(self.functions) == 1:
            rows = [row[:5] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
                 for row in rows]
        blocks = ", ".join(f"{f.num_blocks} x {f.block_calls:,}" for f in self.functions)
        how = f"{self.device}; measured calls: {blocks}{', in turn' if len(self.functions) > 1 else ''}"
        return "\n".join([*lines, how, *(doubt for f in self.functions for doubt in f.doubts)])


def _cells(f: CallTiming) -> list[str]:
    compiling = f"{duration(f.compile_seconds)} ({f.num_compiles})" if f.num_compiles else "-"
    ratio = ["-", "-"] if f.ratio is None else [factor(f.ratio.middle), _ends(f.ratio, factor)]
    return [f.name, duration(f.first_call_seconds), compiling, duration(f.seconds.middle), _ends(f.seconds, duration), *ratio]


def _ends(interval: Interval, text: Callable[[float], str]) -> str:
    return f"{text(interval.low)} to {text(interval.high)}" if interval.low is not None and interval.high is not None else "-"


NUM_BLOCKS = 40             # of calls, for each function: enough for a tight interval, few enough that neighbours differ by more than drift
TIMER_SHARE = 0.01          # a block is so long that reading the clock and waiting for the device stay below this share of it
WARM_BLOCK_SECONDS = 1e-3
WINDOW = 5                  # blocks; steady once the medians of two windows in a row agree within STEADY
STEADY = 0.05

Against = Callable[..., Any] | Mapping[str, Callable[..., Any]]


def benchmark(
    fn: Callable[..., Any], *args: Any, against: Against | None = None, seconds: float = 1.0, reset: bool = True, **kwargs: Any,
) -> Timing:
    """Time `fn(*args, **kwargs)`, and the same call of what it is held against, in turn.

    Calls torch._dynamo.reset() first, which forgets everything compiled in this process (`reset=False` keeps it). The first call is timed
    apart, then each function is called until it is steady, at most for `seconds`; then all are timed in turn, for about `seconds` each.
    """
    import torch

    if not seconds > 0:
        raise TriageError(f"seconds={seconds} is no time to measure in; give the seconds for each function, such as 1.0")
    if reset:
        torch._dynamo.reset()
    subjects = [_Subject(name, function, args, kwargs) for name, function in _named(fn, against).items()]
    for subject in subjects:
        subject.warm_up(seconds)
    with Compiles() as late:
        for subject in subjects:
            subject.compiles = late
        _measure(subjects, seconds)
    return Timing(functions=tuple(subject.timing(subjects[0]) for subject in subjects), device=device_name())


def _named(fn: Callable[..., Any], against: Against | None) -> dict[str, Callable[..., Any]]:
    """By name, `fn` first; one that has a name already gets a number."""
    others = list(against.items()) if isinstance(against, Mapping) else [("", against)] if against is not None else []
    named: dict[str, Callable[..., Any]] = {}
    for given, function in [("", fn), *others]:
        if not callable(function):
            raise TriageError(f"{given or 'against='} is a {type(function).__name__}, which cannot be called; give a function or a module")
        name = given or name_of(uncompiled(function))
        named[name if name not in named else f"{name} ({len(named) + 1})"] = function
    return named


@dataclass(slots=True)
class _Subject:
    """One function under measurement."""

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    first_call: float = 0.0
    num_compiles: int = 0
    compile_seconds: float = 0.0
    is_steady: bool = False
    num_warm_calls: int = 0
    block_calls: int = 1
    blocks: list[float] = field(default_factory=list)       # seconds a call
    num_late_compiles: int = 0
    compiles: Compiles = field(default_factory=Compiles)

    def run(self, num_calls: int) -> float:
        """Seconds of so many calls, until the device is done with them."""
        function, args, kwargs = self.function, self.args, self.kwargs
        synchronise()
        begin = time.perf_counter()
        try:
            for _ in range(num_calls):
                function(*args, **kwargs)
            synchronise()
        except Exception as error:
            when = f"call {self.num_warm_calls + 2}" if self.first_call else "the first call"
            raise TriageError(f"{self.name} failed at {when}: {type(error).__name__}: {error}") from error
        return time.perf_counter() - begin

    def warm_up(self, seconds: float) -> None:
        """The first call, then blocks until two windows of them agree and compile nothing, or the time is over."""
        block_seconds = max(_timer_cost() / TIMER_SHARE, WARM_BLOCK_SECONDS)
        with Compiles() as seen:
            self.first_call = self.run(1)
            means: list[float] = []
            num_calls, end = 1, time.perf_counter() + seconds
            while not self.is_steady and (not self.num_warm_calls or time.perf_counter() < end):
                compiles_before = seen.num
                mean = self.run(num_calls) / num_calls
                means = [*means, mean] if seen.num == compiles_before else []
                self.num_warm_calls += num_calls
                num_calls = _calls_in(block_seconds, mean)
                self.is_steady = _agree(means)
        self.num_compiles, self.compile_seconds = seen.num, seen.seconds
        self.block_calls = _calls_in(max(_timer_cost() / TIMER_SHARE, seconds / NUM_BLOCKS), statistics.median(means[-WINDOW:] or [mean]))

    def measure_block(self) -> None:
        before = self.compiles.num
        self.blocks.append(self.run(self.block_calls) / self.block_calls)
        self.num_late_compiles += self.compiles.num - before

    def timing(self, first: "_Subject") -> CallTiming:
        ratio = median_interval([own / other for own, other in zip(self.blocks, first.blocks, strict=True)]) if self is not first else None
        return CallTiming(
            name=self.name, first_call_seconds=self.first_call, num_compiles=self.num_compiles, compile_seconds=self.compile_seconds,
            num_warm_calls=self.num_warm_calls, is_steady=self.is_steady, seconds=median_interval(self.blocks), ratio=ratio,
            num_blocks=len(self.blocks), block_calls=self.block_calls, num_late_compiles=self.num_late_compiles,
        )


def _calls_in(seconds: float, one_call: float) -> int:
    return max(1, math.ceil(seconds / max(one_call, 1e-9)))


def _agree(means: Sequence[float]) -> bool:
    if len(means) < 2 * WINDOW:
        return False
    before, now = statistics.median(means[-2 * WINDOW:-WINDOW]), statistics.median(means[-WINDOW:])
    return abs(now - before) <= STEADY * before


def _measure(subjects: Sequence[_Subject], seconds: float) -> None:
    """Rounds of one block each; the order rotates, so that nobody always runs first. Python's garbage is not collected in between."""
    end = time.perf_counter() + seconds * len(subjects)
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(NUM_BLOCKS):
            begin = number % len(subjects)
            for subject in [*subjects[begin:], *subjects[:begin]]:
                subject.measure_block()
            if time.perf_counter() > end:
                break
    finally:
        if was_enabled:
            gc.enable()


def _timer_cost() -> float:
    """What reading the clock around a block costs, waiting for an idle device included."""
    costs = []
    for _ in range(20):
        begin = time.perf_counter()
        synchronise()
        costs.append(time.perf_counter() - begin)
    return statistics.median(costs)
