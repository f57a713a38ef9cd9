"""Chooses the edges of a few buckets so that padding wastes least, given how often each size occurs."""

import json
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from torchtriage.diagnosis.recompiles.guard_text import readable
from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import STUDY_FILE, ShapeStudy, VaryingSize


def best_edges(histogram: Mapping[int, int], num_buckets: int) -> tuple[tuple[int, ...], float]:
    """(the edges of at most `num_buckets` buckets that pad least, the share of padding) for a histogram size -> calls.

    The result is exact: an edge between sizes that occur only pads more, so the edge of every group of neighbouring
    sizes is its largest size.
    """
    if num_buckets < 1:
        raise TriageError(f"at least 1 bucket is needed, got num_buckets={num_buckets}; give 1 or more")
    sizes = sorted(size for size, num_calls in histogram.items() if num_calls > 0)
    if not sizes:
        raise TriageError("a histogram without calls has no edges; "
                          "give size -> number of calls, such as {16: 40, 57: 3}")
    if sizes[0] < 0:
        raise TriageError(f"sizes are 0 or more, got {sizes[0]}; give size -> number of calls, not calls -> size")
    edges = tuple(_split(sizes, [histogram[size] for size in sizes], min(num_buckets, len(sizes))))
    return edges, waste_share(histogram, edges)


def waste_share(histogram: Mapping[int, int], edges: Sequence[int]) -> float:
    """The share of padding in the padded dimension; a size above the last edge is not padded."""
    real = sum(size * num_calls for size, num_calls in histogram.items())
    padded = sum((next_edge(size, edges) or size) * num_calls for size, num_calls in histogram.items()) - real
    return padded / (padded + real) if padded else 0.0


def next_edge(size: int, edges: Sequence[int]) -> int | None:
    """The smallest edge that is not below `size`; None if it is above them all."""
    index = bisect_left(edges, size)
    return edges[index] if index < len(edges) else None


def _split(sizes: Sequence[int], calls: Sequence[int], num_buckets: int) -> list[int]:
    """Dynamic programming: best[j] is the least cost of the first j sizes in k buckets.

    The cost of a bucket is edge * calls; the real sizes add the same to every split. The cost obeys the quadrangle
    inequality, so the best last bucket of j begins no earlier than that of any smaller j. Divide and conquer uses this,
    for k * m * log m steps.
    """
    num_sizes = len(sizes)
    calls_before = [0, *accumulate(calls)]
    best = [0 if j == 0 else sizes[j - 1] * calls_before[j] for j in range(num_sizes + 1)]
    begins: list[list[int]] = [[0] * (num_sizes + 1)]

    for k in range(2, num_buckets + 1):
        last, best, begin = best, [0] * (num_sizes + 1), [0] * (num_sizes + 1)
        ranges = [(k, num_sizes, k - 1, num_sizes - 1)]     # of j, and of the start of its last bucket
        while ranges:
            low, high, first, final = ranges.pop()
            if low > high:
                continue
            j = (low + high) // 2
            edge = sizes[j - 1]
            starts = range(first, min(final, j - 1) + 1)
            best[j], begin[j] = min((last[i] + edge * (calls_before[j] - calls_before[i]), i) for i in starts)
            ranges += [(low, j - 1, first, begin[j]), (j + 1, high, begin[j], final)]
        begins.append(begin)

    edges: list[int] = []
    end = num_sizes
    for begin in reversed(begins):
        edges.append(sizes[end - 1])
        end = begin[end]
    return edges[::-1]


def read_study(folder: Path) -> ShapeStudy:
    """The shape study in a recording of `torchtriage shapes`."""
    path = folder / STUDY_FILE
    if not path.is_file():
        raise TriageError(f"no shape study in {folder} ({STUDY_FILE} is missing); "
                          "make one with: torchtriage shapes SCRIPT.py")
    return ShapeStudy.from_dict(json.loads(path.read_text()))


def histogram_of(
    study: ShapeStudy, argument: str, dim: int, place: tuple[str, int] | None = None, function: str = "",
) -> dict[int, int]:
    """Size of `argument` in `dim` -> number of calls.

    In the frame at `place` (path, first line) if the study has it, else in a function of that name, else in any.
    """
    named = [s for s in study.sizes if s.dim == dim and readable(s.source) == argument]
    at_place = [s for s in named if (s.path, s.line) == place]
    in_function = [s for s in named if s.function == function]
    candidates = at_place or in_function or named
    if not candidates:
        raise TriageError(f"the shape study has no varying size of {argument!r} in dim {dim}; "
                          f"it has {_sizes_text(study.sizes)}")
    size = max(candidates, key=lambda s: s.num_calls)
    if size.num_values > len(size.values):
        warnings.warn(
            f"{argument} took {size.num_values} sizes and the study lists the {len(size.values)} most frequent ones: "
            "larger ones may exist",
            stacklevel=3,
        )
    return {int(value): num_calls for value, num_calls in size.values.items()}


def _sizes_text(sizes: Iterable[VaryingSize]) -> str:
    return ", ".join(sorted({f"{readable(s.source)} dim {s.dim}" for s in sizes if s.dim is not None})) or "none"
