"""Merges the statistics of a tensor's shards: one vector is reduced by MAX over the ranks, another by SUM.

N tensors, S statistics, T columns of maxima, A columns of sums.
"""

from typing import Any

import numpy as np

from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat

_COUNTS = [Stat.NUM_NAN, Stat.NUM_INF, Stat.NUM_ZERO, Stat.NUM_SMALL, Stat.NUM_LARGE, Stat.NUM_ELEMENTS]
_HIGH, _LOW, _ABS, _PIVOT, _NAN, _INF = range(6)
NUM_TOPS = 6
_NORM, _MEAN, _SQUARE = range(len(_COUNTS), len(_COUNTS) + 3)
NUM_SUMS = len(_COUNTS) + 3


def tops(part_NS: Any, counts_N: Any) -> Any:
    """[N, T], to be reduced by MAX.

    NaN and Inf are included even where an equal part of another rank counts instead.
    """
    top_NT = np.full((len(part_NS), NUM_TOPS), -np.inf)
    known_N = _num_finite(part_NS, counts_N) > 0
    top_NT[known_N, _HIGH] = part_NS[known_N, Stat.MAX]
    top_NT[known_N, _LOW] = -part_NS[known_N, Stat.MIN]
    top_NT[known_N, _PIVOT] = part_NS[known_N, Stat.MEAN]
    top_NT[:, _ABS] = np.where(known_N, part_NS[:, Stat.MAX_ABS], 0.0)
    top_NT[:, [_NAN, _INF]] = part_NS[:, [Stat.NUM_NAN, Stat.NUM_INF]]
    return top_NT


def sums(part_NS: Any, counts_N: Any, top_NT: Any) -> Any:
    """[N, A], to be reduced by SUM once the maxima over all ranks are known.

    Values are divided by the largest of all ranks before they are squared, so that squares neither overflow nor
    underflow. Means are relative to the largest mean, so that a spread far below the mean is not lost.

    """
    num_N = _num_finite(part_NS, counts_N)
    pivot_N, scale_N = _pivot(top_NT), _scale(top_NT)
    away_N = np.where(num_N > 0, (part_NS[:, Stat.MEAN] - pivot_N) / scale_N, 0.0)
    sum_NA = np.zeros((len(part_NS), NUM_SUMS))
    sum_NA[:, : len(_COUNTS)] = np.where(counts_N[:, None], part_NS[:, _COUNTS], 0.0)
    sum_NA[:, _NORM] = np.where(counts_N, (part_NS[:, Stat.NORM] / scale_N) ** 2, 0.0)
    sum_NA[:, _MEAN] = num_N * away_N
    sum_NA[:, _SQUARE] = num_N * ((part_NS[:, Stat.STD] / scale_N) ** 2 + away_N**2)
    return sum_NA


def merge(top_NT: Any, sum_NA: Any, num_elements_N: Any) -> Any:
    """[N, S]; the row of a tensor with a missing part has no elements."""
    full_NS = np.zeros((len(top_NT), NUM_STATS))
    full_NS[:, _COUNTS] = sum_NA[:, : len(_COUNTS)]
    num_N = _num_finite(full_NS, True)
    known_N, num_N = num_N > 0, np.maximum(num_N, 1)
    pivot_N, scale_N = _pivot(top_NT), _scale(top_NT)
    away_N = sum_NA[:, _MEAN] / num_N
    full_NS[:, Stat.NORM] = scale_N * np.sqrt(sum_NA[:, _NORM])
    full_NS[:, Stat.MEAN] = pivot_N + scale_N * away_N
    full_NS[:, Stat.STD] = scale_N * np.sqrt(np.maximum(sum_NA[:, _SQUARE] / num_N - away_N**2, 0.0))
    full_NS[:, Stat.MIN], full_NS[:, Stat.MAX] = -top_NT[:, _LOW], top_NT[:, _HIGH]
    full_NS[:, Stat.MAX_ABS] = top_NT[:, _ABS]
    full_NS[~known_N, Stat.NORM : Stat.MAX_ABS + 1] = 0.0
    full_NS[:, Stat.NUM_NAN] = np.maximum(full_NS[:, Stat.NUM_NAN], top_NT[:, _NAN])
    full_NS[:, Stat.NUM_INF] = np.maximum(full_NS[:, Stat.NUM_INF], top_NT[:, _INF])
    full_NS[full_NS[:, Stat.NUM_ELEMENTS] != num_elements_N] = 0.0
    return full_NS


def _num_finite(part_NS: Any, counts_N: Any) -> Any:
    return np.where(counts_N, part_NS[:, Stat.NUM_ELEMENTS] - part_NS[:, Stat.NUM_NAN] - part_NS[:, Stat.NUM_INF], 0.0)


def _pivot(top_NT: Any) -> Any:
    return np.where(np.isfinite(top_NT[:, _PIVOT]), top_NT[:, _PIVOT], 0.0)


def _scale(top_NT: Any) -> Any:
    return np.where(top_NT[:, _ABS] > 0, top_NT[:, _ABS], 1.0)
