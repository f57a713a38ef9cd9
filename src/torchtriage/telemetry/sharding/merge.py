"""Statistics of tensors from those of their parts on several ranks: one vector to take the maximum of, one to add up.

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
    """[N, T], of which all ranks take the maximum. NaN and Inf are told also where an equal part counts in place of this one."""
    top_NT = np.full((len(part_NS), NUM_TOPS), -np.inf)
    known_N = _num_finite(part_NS, counts_N) > 0
    top_NT[known_N, _HIGH] = part_NS[known_N, Stat.MAX]
    top_NT[known_N, _LOW] = -part_NS[known_N, Stat.MIN]
    top_NT[known_N, _PIVOT] = part_NS[known_N, Stat.MEAN]
    top_NT[:, _ABS] = np.where(known_N, part_NS[:, Stat.MAX_ABS], 0.0)
    top_NT[:, [_NAN, _INF]] = part_NS[:, [Stat.NUM_NAN, Stat.NUM_INF]]
    return top_NT


def sums(part_NS: Any, counts_N: Any, top_NT: Any) -> Any:
    """[N, A], which all ranks add up, once they know the maxima of all.

    Squares are of values over the largest of all ranks, so that they neither overflow nor vanish; means are told from the largest mean, so
    that the spread is not lost where it is far below the mean.
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


def merged(top_NT: Any, sum_NA: Any, num_elements_N: Any) -> Any:
    """[N, S]; a row without elements for a tensor of which not every part was there."""
    whole_NS = np.zeros((len(top_NT), NUM_STATS))
    whole_NS[:, _COUNTS] = sum_NA[:, : len(_COUNTS)]
    num_N = _num_finite(whole_NS, True)
    known_N, num_N = num_N > 0, np.maximum(num_N, 1)
    pivot_N, scale_N = _pivot(top_NT), _scale(top_NT)
    away_N = sum_NA[:, _MEAN] / num_N
    whole_NS[:, Stat.NORM] = scale_N * np.sqrt(sum_NA[:, _NORM])
    whole_NS[:, Stat.MEAN] = pivot_N + scale_N * away_N
    whole_NS[:, Stat.STD] = scale_N * np.sqrt(np.maximum(sum_NA[:, _SQUARE] / num_N - away_N**2, 0.0))
    whole_NS[:, Stat.MIN], whole_NS[:, Stat.MAX], whole_NS[:, Stat.MAX_ABS] = -top_NT[:, _LOW], top_NT[:, _HIGH], top_NT[:, _ABS]
    whole_NS[~known_N, Stat.NORM : Stat.MAX_ABS + 1] = 0.0
    whole_NS[:, Stat.NUM_NAN] = np.maximum(whole_NS[:, Stat.NUM_NAN], top_NT[:, _NAN])
    whole_NS[:, Stat.NUM_INF] = np.maximum(whole_NS[:, Stat.NUM_INF], top_NT[:, _INF])
    whole_NS[whole_NS[:, Stat.NUM_ELEMENTS] != num_elements_N] = 0.0
    return whole_NS


def _num_finite(part_NS: Any, counts_N: Any) -> Any:
    return np.where(counts_N, part_NS[:, Stat.NUM_ELEMENTS] - part_NS[:, Stat.NUM_NAN] - part_NS[:, Stat.NUM_INF], 0.0)


def _pivot(top_NT: Any) -> Any:
    return np.where(np.isfinite(top_NT[:, _PIVOT]), top_NT[:, _PIVOT], 0.0)


def _scale(top_NT: Any) -> Any:
    return np.where(top_NT[:, _ABS] > 0, top_NT[:, _ABS], 1.0)
