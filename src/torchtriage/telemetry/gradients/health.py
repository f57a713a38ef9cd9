"""Gradient health of a group of parameters, as pure functions of their statistics.   P tensors, S statistics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchtriage.diagnosis.learning.limits import DEFAULT, LearningLimits
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat

CLIP_NORM = 0.5                 # the usual limit in PPO
VANISHING_WEIGHT, EXPLODING_WEIGHT = 0.5, 0.8       # an exploding tensor ruins the step, a vanishing one only wastes it
ZERO_FRACTION_HEALTHY = 0.5
SMALLEST_NORM = 1e-10           # keeps the ratio of norms finite where a tensor's gradient is zero
EPSILON = 1e-8
HEALTHY_RATIO = (0.05, 0.2)     # from experience with small modules that are grown into a larger network
DORMANT_RATIO = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBounds:
    """The norms below and above which a tensor's gradient has vanished or exploded."""

    clip_norm: float = CLIP_NORM
    limits: LearningLimits = DEFAULT

    def __post_init__(self) -> None:
        if not self.clip_norm > 0:
            raise ValueError(
                f"clip_norm must be above 0, got {self.clip_norm}; "
                "give that of clip_grad_norm_, or inf without clipping"
            )

    @property
    def vanishing(self) -> float:
        return self.limits.vanishing_norm

    @property
    def exploding(self) -> float:
        return self.limits.grad_norm_factor * self.clip_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStats:
    """The gradients of a group.

    The norm equals that of clip_grad_norm_, summed in double: NaN or inf if a gradient is.
    """

    gradient_norm: float
    gradient_health: float      # 1 is healthy, 0 is sick
    num_tensors: int            # with a gradient of at least one element
    num_vanishing: int
    num_exploding: int
    param_count: int

    @property
    def has_vanishing(self) -> bool:
        return self.num_vanishing > 0

    @property
    def has_exploding(self) -> bool:
        return self.num_exploding > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientHealthMetrics(GradientStats):
    """GradientStats with statistics beyond norms. A non-finite gradient makes its norm, and the ratio, NaN or inf."""

    min_layer_norm: float
    max_layer_norm: float
    norm_ratio: float
    zero_fraction: float
    nan_count: int
    inf_count: int
    norm_ratio_max: float = DEFAULT.norm_ratio_max

    @property
    def is_healthy(self) -> bool:
        is_finite = self.nan_count == 0 and self.inf_count == 0
        is_balanced = self.norm_ratio < self.norm_ratio_max and self.zero_fraction < ZERO_FRACTION_HEALTHY
        return is_finite and is_balanced and not self.has_exploding


@dataclass(frozen=True, slots=True, kw_only=True)
class DualGradientStats:
    """Gradient norm and number of elements of a small module (seed) and of the network it is grown into (host).

    `GroupGradientStats.normalized_ratio` is the same ratio for any two groups.
    """

    host_norm: float
    host_count: int
    seed_norm: float
    seed_count: int

    @property
    def normalized_ratio(self) -> float:
        return normalized_ratio(self.seed_norm, self.seed_count, self.host_norm, self.host_count)

    @property
    def is_healthy(self) -> bool:
        low, high = HEALTHY_RATIO
        return low <= self.normalized_ratio <= high

    @property
    def is_dormant(self) -> bool:
        return self.normalized_ratio < DORMANT_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGradientStats:
    """Gradients by named group, and overall; a tensor in two groups counts once in `overall`."""

    overall: GradientStats
    groups: Mapping[str, GradientStats]

    def normalized_ratio(self, group: str, reference: str) -> float:
        """Root-mean-square gradient of one group over that of another; 0.05 to 0.2 is healthy for a part that is
        grown.
        """
        part, other = self[group], self[reference]
        return normalized_ratio(part.gradient_norm, part.param_count, other.gradient_norm, other.param_count)

    def dual(self, *, host: str = "host", seed: str = "seed") -> DualGradientStats:
        return DualGradientStats(
            host_norm=self[host].gradient_norm, host_count=self[host].param_count,
            seed_norm=self[seed].gradient_norm, seed_count=self[seed].param_count,
        )

    def __getitem__(self, group: str) -> GradientStats:
        if group not in self.groups:
            raise KeyError(f"there is no group {group!r}; the groups are: {', '.join(self.groups) or 'none'}")
        return self.groups[group]


def empty_rows(count: int) -> Any:
    return np.zeros((count, NUM_STATS))


def rows_of_norms(norms: Any) -> Any:
    """Rows of which only the norms are known; a norm of NaN or inf means at least one such element."""
    table_PS = empty_rows(len(norms))
    table_PS[:, Stat.NORM] = np.where(np.isfinite(norms), norms, 0.0)
    table_PS[:, Stat.NUM_NAN], table_PS[:, Stat.NUM_INF] = np.isnan(norms), np.isinf(norms)
    return table_PS


def gradient_stats(table_PS: Any, bounds: GradientBounds, *, enhanced: bool) -> GradientStats:
    """GradientHealthMetrics if `enhanced`. Without gradients the norm is 0 and the health 1."""
    table_PS = table_PS[table_PS[:, Stat.NUM_ELEMENTS] > 0]
    has_nan_P, has_inf_P = table_PS[:, Stat.NUM_NAN] > 0, table_PS[:, Stat.NUM_INF] > 0
    norm_P = np.where(has_nan_P, math.nan, np.where(has_inf_P, math.inf, table_PS[:, Stat.NORM]))
    num_tensors = len(norm_P)
    norm = _overall(norm_P)
    num_vanishing = int((norm_P < bounds.vanishing).sum())
    num_exploding = num_tensors - int((norm_P <= min(bounds.exploding, np.finfo(np.float64).max)).sum())
    basic: dict[str, Any] = {
        "gradient_norm": norm, "gradient_health": _health(norm, num_tensors, num_vanishing, num_exploding),
        "num_tensors": num_tensors, "num_vanishing": num_vanishing, "num_exploding": num_exploding,
        "param_count": int(table_PS[:, Stat.NUM_ELEMENTS].sum()),
    }
    if not enhanced:
        return GradientStats(**basic)
    least, most = (float(norm_P.min()), float(norm_P.max())) if num_tensors else (0.0, 0.0)
    return GradientHealthMetrics(
        **basic, min_layer_norm=least, max_layer_norm=most, norm_ratio=most / max(least, SMALLEST_NORM),
        zero_fraction=float(table_PS[:, Stat.NUM_ZERO].sum()) / max(basic["param_count"], 1),
        nan_count=int(table_PS[:, Stat.NUM_NAN].sum()), inf_count=int(table_PS[:, Stat.NUM_INF].sum()),
        norm_ratio_max=bounds.limits.norm_ratio_max,
    )


def _overall(norm_P: Any) -> float:
    # hypot neither overflows nor underflows; but it returns infinity even with a NaN, unlike clip_grad_norm_.
    return math.nan if np.isnan(norm_P).any() else math.hypot(*norm_P.tolist())


def _health(norm: float, num_tensors: int, num_vanishing: int, num_exploding: int) -> float:
    if not math.isfinite(norm):
        return 0.0
    shares = (VANISHING_WEIGHT * num_vanishing + EXPLODING_WEIGHT * num_exploding) / max(num_tensors, 1)
    return min(max(1.0 - shares, 0.0), 1.0)


def normalized_ratio(norm: float, count: int, reference_norm: float, reference_count: int) -> float:
    """Root-mean-square gradient of a part over that of its reference, which is independent of their sizes.

    0 if either has almost no gradient, NaN if either norm is not finite.
    """
    if not (math.isfinite(norm) and math.isfinite(reference_norm)):
        return math.nan
    if norm < EPSILON or reference_norm < EPSILON or count <= 0 or reference_count <= 0:
        return 0.0
    return (norm / math.sqrt(count)) / (reference_norm / math.sqrt(reference_count) + EPSILON)
