"""`benchmark(fn, *args)`: the steady time of one call, separate from compile time, with a confidence interval."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import Interval
from torchtriage.proof.statistics import median_interval
from torchtriage.shapes.functions.compiling import Compiles, device_name, name_of, synchronise, uncompiled
from torchtriage.text import counted, duration, factor, times


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """The times of one function, all observed."""

    name: str
    first_call_seconds: float
    num_compiles: int               # in the first call and the warm-up
    compile_seconds: float          # of these compiles, by Dynamo's own clock
    num_warm_calls: int
    is_steady: bool                 # the warm-up ended because the time per call no longer changed
    seconds: Interval               # one call
    ratio: Interval | None          # to the first function, block by block; None for the first function
    num_blocks: int
    block_calls: int
    num_late_compiles: int = 0      # during the measurement

    @property
    def doubts(self) -> list[str]:
        """Reasons not to trust the figures."""
        doubts = []
        if not self.is_steady:
            calls = counted(self.num_warm_calls, "warm-up call")
            doubts.append(f"{self.name} did not become steady in {calls}; increase seconds=")
        if self.num_late_compiles:
            doubts.append(f"{self.name} compiled {times(self.num_late_compiles)} during the measurement")
        if self.seconds.low is None:
            blocks = counted(self.num_blocks, "block")
            doubts.append(f"{self.name}: too few for a confidence interval ({blocks}); increase seconds=")
        return doubts


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The result of `benchmark`. `timing.seconds` is that of the first function, `timing["name"]` the row of any."""

    functions: Sequence[CallTiming]
    device: str = "cpu"

    @property
    def seconds(self) -> Interval:
        return self.functions[0].seconds

    def __getitem__(self, name: str) -> CallTiming:
        row = next((f for f in self.functions if f.name == name), None)
        if row is None:
            raise KeyError(f"{name} was not timed; available: {', '.join(f.name for f in self.functions)}")
        return row

    def __repr__(self) -> str:
        first = self.functions[0].name
        head = ["", "first call", "compiling", "one call", "95 %", f"/ {first}", "95 %"]
        rows = [head, *(_cells(f) for f in self.functions)]
        if len(self.functions) == 1:
            rows = [row[:5] for row in rows]
        blocks = ", ".join(f"{f.num_blocks} x {f.block_calls:,}" for f in self.functions)
        how = f"{self.device}; measured calls: {blocks}{', interleaved' if len(self.functions) > 1 else ''}"
        return "\n".join([*_aligned(rows), how, *(doubt for f in self.functions for doubt in f.doubts)])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        cells = [name.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(numbers, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _cells(f: CallTiming) -> list[str]:
    compiling = f"{duration(f.compile_seconds)} ({f.num_compiles})" if f.num_compiles else "-"
    ratio = ["-", "-"] if f.ratio is None else [factor(f.ratio.middle), _ends(f.ratio, factor)]
    one_call = [duration(f.seconds.middle), _ends(f.seconds, duration)]
    return [f.name, duration(f.first_call_seconds), compiling, *one_call, *ratio]


def _ends(interval: Interval, text: Callable[[float], str]) -> str:
    if interval.low is None or interval.high is None:
        return "-"
    return f"{text(interval.low)} to {text(interval.high)}"


# Blocks of calls per function: enough for a tight interval, few enough that neighbours differ by more than drift.
NUM_BLOCKS = 40
# Reading the clock and waiting for the device may take this share of a block, which sets the length of a block.
TIMER_SHARE = 0.01
WARM_BLOCK_SECONDS = 1e-3
WINDOW = 5                  # blocks; steady once the medians of two consecutive windows agree within STEADY
STEADY = 0.05

Against = Callable[..., Any] | Mapping[str, Callable[..., Any]]


def benchmark(
    fn: Callable[..., Any], *args: Any, against: Against | None = None, seconds: float = 1.0, reset: bool = True,
    **kwargs: Any,
) -> Timing:
    """Time `fn(*args, **kwargs)`, interleaved with the same call of the functions in `against`.

    Calls torch._dynamo.reset() first, which discards everything compiled in this process (`reset=False` keeps it). The
    first call is timed separately. Then each function is called until it is steady, for at most `seconds`. Then all are
    timed in interleaved blocks, for about `seconds` each.
    """
    import torch

    if not seconds > 0:
        raise TriageError(f"seconds={seconds} is not a time to measure in; give the seconds per function, such as 1.0")
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
    """Functions by name, `fn` first; a name that occurs again gets a number."""
    functions: list[tuple[str, Callable[..., Any]]] = [("", fn)]
    if isinstance(against, Mapping):
        functions += against.items()
    elif against is not None:
        functions.append(("", against))
    named: dict[str, Callable[..., Any]] = {}
    for given, function in functions:
        if not callable(function):
            kind = type(function).__name__
            raise TriageError(f"{given or 'against='} is a {kind}, which cannot be called; give a function or a module")
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
    blocks: list[float] = field(default_factory=list)       # seconds per call
    num_late_compiles: int = 0
    compiles: Compiles = field(default_factory=Compiles)

    def run(self, num_calls: int) -> float:
        """Seconds of `num_calls` calls, until the device has finished them."""
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
        """The first call, then blocks until two windows agree without a compile, or the time is up."""
        block_seconds = max(_timer_cost() / TIMER_SHARE, WARM_BLOCK_SECONDS)
        with Compiles() as compiles:
            self.first_call = self.run(1)
            means: list[float] = []
            num_calls, end = 1, time.perf_counter() + seconds
            while not self.is_steady and (not self.num_warm_calls or time.perf_counter() < end):
                compiles_before = compiles.num
                mean = self.run(num_calls) / num_calls
                means = [*means, mean] if compiles.num == compiles_before else []
                self.num_warm_calls += num_calls
                num_calls = _calls_in(block_seconds, mean)
                self.is_steady = _agree(means)
        self.num_compiles, self.compile_seconds = compiles.num, compiles.seconds
        steady_mean = statistics.median(means[-WINDOW:] or [mean])
        self.block_calls = _calls_in(max(_timer_cost() / TIMER_SHARE, seconds / NUM_BLOCKS), steady_mean)

    def measure_block(self) -> None:
        before = self.compiles.num
        self.blocks.append(self.run(self.block_calls) / self.block_calls)
        self.num_late_compiles += self.compiles.num - before

    def timing(self, first: "_Subject") -> CallTiming:
        ratio = None
        if self is not first:
            ratio = median_interval([own / other for own, other in zip(self.blocks, first.blocks, strict=True)])
        return CallTiming(
            name=self.name, first_call_seconds=self.first_call, num_compiles=self.num_compiles,
            compile_seconds=self.compile_seconds, num_warm_calls=self.num_warm_calls, is_steady=self.is_steady,
            seconds=median_interval(self.blocks), ratio=ratio, num_blocks=len(self.blocks),
            block_calls=self.block_calls, num_late_compiles=self.num_late_compiles,
        )


def _calls_in(seconds: float, one_call: float) -> int:
    return max(1, math.ceil(seconds / max(one_call, 1e-9)))


def _agree(means: Sequence[float]) -> bool:
    if len(means) < 2 * WINDOW:
        return False
    before, now = statistics.median(means[-2 * WINDOW:-WINDOW]), statistics.median(means[-WINDOW:])
    return abs(now - before) <= STEADY * before


def _measure(subjects: Sequence[_Subject], seconds: float) -> None:
    """Rounds of one block per function, rotated so that none always goes first; without garbage collection."""
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
    """The cost of reading the clock around a block, including the wait for an idle device."""
    costs = []
    for _ in range(20):
        begin = time.perf_counter()
        synchronise()
        costs.append(time.perf_counter() - begin)
    return statistics.median(costs)
