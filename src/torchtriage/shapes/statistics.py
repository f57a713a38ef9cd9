"""Middles and 95 % intervals over a few runs, ratios paired by round, and how many more rounds would settle a comparison."""

import math
import statistics
from collections.abc import Mapping, Sequence

from torchtriage.findings.shape_study import Interval

# The 97.5 % quantiles of Student's t by degrees of freedom; beyond the table the normal one with its first correction.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)

MAX_ROUNDS = 1000


def t_quantile(degrees: int) -> float:
    return _T[degrees - 1] if degrees <= len(_T) else 1.960 + 2.372 / degrees


def interval(values: Sequence[float]) -> Interval:
    """The median, and the interval of the mean, which one odd run widens; taken over logarithms, since times spread by factors."""
    middle = statistics.median(values)
    if len(values) < 2:
        return Interval(middle=middle)
    if min(values) <= 0:
        return Interval(middle=middle, low=min(values), high=max(values))
    low, high = _log_ends([math.log(value) for value in values])
    return Interval(middle=middle, low=min(low, middle), high=max(high, middle))


def paired_ratio(of: Mapping[int, float], to: Mapping[int, float]) -> Interval | None:
    """`of` / `to` over the rounds that both took part in: what slows a whole round down cancels out."""
    return interval([of[n] / to[n] for n in sorted(of.keys() & to.keys())]) if of.keys() & to.keys() else None


def rounds_to_settle(of: Mapping[int, float], to: Mapping[int, float], tolerance: float) -> int | None:
    """How many rounds in all, at the spread seen so far, would show that `of` is quicker than `to`, or not by more than the tolerance.

    None if that cannot be told yet, or if it would take more rounds than anybody waits for.
    """
    logs = [math.log(of[n] / to[n]) for n in of.keys() & to.keys()]
    if len(logs) < 2:
        return None
    distance, spread, slack = statistics.fmean(logs), statistics.stdev(logs), -math.log1p(-tolerance)
    margin = max(-distance, slack + distance)
    rounds = len(logs)
    while t_quantile(rounds - 1) * spread / math.sqrt(rounds) >= margin and rounds <= MAX_ROUNDS:
        rounds += 1
    return rounds if rounds <= MAX_ROUNDS else None


def _log_ends(logs: Sequence[float]) -> tuple[float, float]:
    mean = statistics.fmean(logs)
    half = t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(min(mean - half, 700.0)), math.exp(min(mean + half, 700.0))
