"""Statistics of a few runs: medians, 95 % intervals, paired ratios.

Times vary by factors, so the statistics work on logarithms. The noise of the machine is estimated from all policies
together, because a few runs of one policy say little on their own.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Interval

# The 97.5 % quantiles of Student's t by degrees of freedom; beyond the table, the normal one with a first correction.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)

MAX_ROUNDS = 1000
MIN_FOR_INTERVAL = 6        # with fewer, no two of the values enclose the median with 95 % probability
# Sweeps of fitting policies and rounds alternately; the first one is exact if every policy ran in every round.
_SWEEPS = 50

ByRound = Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The standard deviation of the logarithm of one measurement, and the degrees of freedom of that estimate."""

    spread: float
    degrees: int

    def half_width(self, variance: float) -> float:
        """Of the 95 % interval of an estimate; `variance` is in multiples of the variance of one measurement."""
        return t_quantile(self.degrees) * self.spread * math.sqrt(variance)


def noise_of(measured: Mapping[str, ByRound], *, paired: bool) -> Noise | None:
    """The residual after fitting one level per policy and, if `paired`, one per round.

    None if no degree of freedom is left.
    """
    logs = _logs(measured)
    num_levels = len({name for name, _ in logs})
    if paired:
        num_levels += max(0, len({n for _, n in logs}) - 1)
    if len(logs) <= num_levels:
        return None
    for _ in range(_SWEEPS):
        for axis in (0, 1) if paired else (0,):
            logs, _ = _without_levels(logs, axis, statistics.fmean)
    degrees = len(logs) - num_levels
    return Noise(spread=math.sqrt(sum(value * value for value in logs.values()) / degrees), degrees=degrees)


def levels(measured: Mapping[str, ByRound]) -> dict[str, float]:
    """The time of each policy in a typical round, whichever rounds it ran in: the slowdown of a round is removed.

    Tukey's median polish, so one outlier changes nothing.
    """
    logs = _logs(measured)
    policies, rounds = ({key[axis]: 0.0 for key in logs} for axis in (0, 1))
    for _ in range(_SWEEPS):
        for axis, sums in ((1, rounds), (0, policies)):
            logs, middles = _without_levels(logs, axis, statistics.median)
            for level, value in middles.items():
                sums[level] += value
    typical = statistics.median(rounds.values()) if rounds else 0.0
    return {str(name): math.exp(typical + value) for name, value in policies.items()}


_Logs = Mapping[tuple[str, int], float]


def _logs(measured: Mapping[str, ByRound]) -> _Logs:
    return {(name, n): math.log(value) for name, runs in measured.items() for n, value in runs.items() if value > 0}


def _without_levels(
    logs: _Logs, axis: int, middle: Callable[[list[float]], float],
) -> tuple[_Logs, dict[str | int, float]]:
    """(the residuals, the middles that were subtracted) along an axis: 0 the policies, 1 the rounds."""
    values: dict[str | int, list[float]] = {}
    for key, value in logs.items():
        values.setdefault(key[axis], []).append(value)
    middles = {level: middle(some) for level, some in values.items()}
    return {key: value - middles[key[axis]] for key, value in logs.items()}, middles


def t_quantile(degrees: int) -> float:
    return _T[degrees - 1] if degrees <= len(_T) else 1.960 + 2.372 / degrees


def interval(values: Sequence[float], noise: Noise | None = None) -> Interval:
    """The median, and the interval of the mean, which one outlier widens.

    `noise`: if it is estimated from more than these values.
    """
    middle = statistics.median(values)
    if min(values) <= 0:
        has_range = len(values) > 1
        return Interval(middle=middle, low=min(values), high=max(values)) if has_range else Interval(middle=middle)
    noise = noise or noise_of({"": dict(enumerate(values))}, paired=False)
    return _around([math.log(value) for value in values], middle, noise, variance=1.0)


def paired_ratio(of: ByRound, to: ByRound, noise: Noise | None = None) -> Interval | None:
    """`of` / `to` over the rounds in which both ran: a slowdown of an entire round cancels out."""
    rounds = sorted(of.keys() & to.keys())
    if not rounds:
        return None
    ratios = [of[n] / to[n] for n in rounds]
    noise = noise or noise_of({"of": {n: of[n] for n in rounds}, "to": {n: to[n] for n in rounds}}, paired=True)
    return _around([math.log(ratio) for ratio in ratios], statistics.median(ratios), noise, variance=2.0)


def rounds_to_decide(
    of: ByRound, to: ByRound, edge: float, narrow: float, noise: Noise | None = None,
) -> int | None:
    """The total number of rounds after which `of` / `to` is clearly on one side of the edge, or its interval is narrow.

    Assumes the noise so far. None if that is unknown, or if it would take more than MAX_ROUNDS.
    """
    common = of.keys() & to.keys()
    noise = noise or noise_of({"of": {n: of[n] for n in common}, "to": {n: to[n] for n in common}}, paired=True)
    if len(common) < 2 or noise is None:
        return None
    margin = max(narrow, abs(statistics.fmean(math.log(of[n] / to[n]) for n in common) - math.log(edge)))
    for rounds in range(len(common), MAX_ROUNDS + 1):
        degrees = noise.degrees * (rounds - 1) // (len(common) - 1)
        if Noise(spread=noise.spread, degrees=degrees).half_width(2 / rounds) < margin:
            return rounds
    return None


def median_interval(values: Sequence[float]) -> Interval:
    """The median, and two values that enclose the true one with at least 95 % probability, for any distribution."""
    middle, number = statistics.median(values), len(values)
    if number < MIN_FOR_INTERVAL:
        return Interval(middle=middle)
    ordered, rank, outside = sorted(values), 0, 0.0
    while (outside := outside + 2 * math.comb(number, rank) * 0.5 ** number) <= 0.05:
        rank += 1
    return Interval(middle=middle, low=ordered[rank - 1], high=ordered[number - rank])


def _around(logs: Sequence[float], middle: float, noise: Noise | None, variance: float) -> Interval:
    """The interval of the mean of these logarithms; `variance` of each is in multiples of that of one measurement."""
    if noise is None:
        return Interval(middle=middle)
    mean, half = statistics.fmean(logs), noise.half_width(variance / len(logs))
    low, high = (math.exp(min(end, 700.0)) for end in (mean - half, mean + half))
    return Interval(middle=middle, low=min(low, middle), high=max(high, middle))
