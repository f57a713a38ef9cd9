"""What `benchmark` found: one row a function, shown as a small table."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Interval
from torchtriage.shapes.wording import seconds_text, times_text

MIN_FOR_INTERVAL = 6        # below, no two of the values enclose the median with 95 % probability


def median_interval(values: Sequence[float]) -> Interval:
    """The median, and the two values that enclose the true one with at least 95 % probability, whatever the distribution."""
    middle, number = statistics.median(values), len(values)
    if number < MIN_FOR_INTERVAL:
        return Interval(middle=middle)
    ordered, rank, outside = sorted(values), 0, 0.0
    while (outside := outside + 2 * math.comb(number, rank) * 0.5 ** number) <= 0.05:
        rank += 1
    return Interval(middle=middle, low=ordered[rank - 1], high=ordered[number - rank])


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
    compiling = f"{seconds_text(f.compile_seconds)} ({f.num_compiles})" if f.num_compiles else "-"
    ratio = ["-", "-"] if f.ratio is None else [times_text(f.ratio.middle), _ends(f.ratio, times_text)]
    return [f.name, seconds_text(f.first_call_seconds), compiling, seconds_text(f.seconds.middle), _ends(f.seconds, seconds_text), *ratio]


def _ends(interval: Interval, text: Callable[[float], str]) -> str:
    return f"{text(interval.low)} to {text(interval.high)}" if interval.low is not None and interval.high is not None else "-"
