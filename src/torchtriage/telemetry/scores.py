"""What batches and layers are worth in one number or word: pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torchtriage.diagnosis.learning_limits import DEFAULT
from torchtriage.telemetry.layer_gradients import LayerGradientStats

Trend = Literal["plateau", "improvement", "degradation"]

DEGRADATION_MIN = 0.1       # share of the rolling mean that is lost
QUIET_UNTIL = 0.1           # share of the training in which a drop means nothing: it has only begun to learn
PLATEAU_BELOW = 0.5         # in points of what is averaged: percent of accuracy, or return
TREND_BEYOND = 2.0


def layer_score(layer: LayerGradientStats) -> float:
    """1 is healthy; 0 is dead, or not finite."""
    if layer.nan_count or layer.inf_count or layer.zero_fraction > DEFAULT.zero_fraction_max:
        return 0.0
    if layer.large_fraction > DEFAULT.large_fraction_max:
        return 0.1
    if layer.zero_fraction > 0.5 or layer.large_fraction > 0.05:
        return 0.5
    return 0.7 if layer.zero_fraction > 0.3 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGradientHealth:
    """All layers of a model at one backward pass."""

    layer_scores: Mapping[str, float]
    dead_layers: tuple[str, ...]            # almost every gradient is zero
    exploding_layers: tuple[str, ...]       # many gradients are large, or one is infinite
    nan_count: int
    inf_count: int

    @property
    def score(self) -> float:
        """The mean over layers; 1 if there are none."""
        return sum(self.layer_scores.values()) / len(self.layer_scores) if self.layer_scores else 1.0


def aggregate_layer_gradient_health(layers: Sequence[LayerGradientStats]) -> LayerGradientHealth:
    return LayerGradientHealth(
        layer_scores={layer.layer_name: layer_score(layer) for layer in layers},
        dead_layers=tuple(layer.layer_name for layer in layers if layer.zero_fraction > DEFAULT.zero_fraction_max),
        exploding_layers=tuple(
            layer.layer_name for layer in layers if layer.inf_count or layer.large_fraction > DEFAULT.large_fraction_max
        ),
        nan_count=sum(layer.nan_count for layer in layers), inf_count=sum(layer.inf_count for layer in layers),
    )


def check_performance_degradation(current: float, rolling: float, progress: float) -> float | None:
    """The share of the rolling mean that is lost, if that is too much; None early in the training or if there is nothing to lose."""
    if not (math.isfinite(current) and math.isfinite(rolling)) or rolling <= 0 or progress < QUIET_UNTIL:
        return None
    drop = (rolling - current) / rolling
    return drop if drop >= DEGRADATION_MIN else None


def trend_of(change: float) -> Trend | None:
    """What the change of a mean over batches says; None between a plateau and a trend."""
    if abs(change) < PLATEAU_BELOW:
        return "plateau"
    if abs(change) > TREND_BEYOND:
        return "improvement" if change > 0 else "degradation"
    return None
