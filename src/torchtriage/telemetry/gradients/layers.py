"""Statistics of every layer: more expensive than norms, for use while debugging."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch

from torchtriage.diagnosis.learning.limits import DEFAULT
from torchtriage.telemetry.gradients.collect import measurable, outside_graphs, rows
from torchtriage.telemetry.statistics.columns import LARGE, SMALL, Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGradientStats:
    """Statistics of one parameter.

    Norms, means, deviations (of the population) and extremes describe its finite elements; nan_count and inf_count
    count the others.
    """

    layer_name: str
    param_count: int
    grad_norm: float
    grad_mean: float
    grad_std: float
    grad_min: float
    grad_max: float
    zero_fraction: float
    small_fraction: float       # |gradient| < small, zeros included
    large_fraction: float       # |gradient| > large, infinities included
    nan_count: int
    inf_count: int
    weight_norm: float
    weight_mean: float
    weight_std: float
    weight_min: float
    weight_max: float


class LayerGradients(Sequence[LayerGradientStats]):
    """Reads and compares like a list.

    If compiled code received a real list, Dynamo would guard on its length and compile again for a model with another
    number of layers. It does not look into an object of this class.
    """

    def __init__(self, layers: Iterable[LayerGradientStats]) -> None:
        self._layers = list(layers)

    def __len__(self) -> int:
        return len(self._layers)

    @overload
    def __getitem__(self, index: int) -> LayerGradientStats: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerGradientStats]: ...
    def __getitem__(self, index: int | slice) -> LayerGradientStats | list[LayerGradientStats]:
        return self._layers[index]

    def __eq__(self, other: object) -> bool:
        return self._layers == (other._layers if isinstance(other, LayerGradients) else other)

    __hash__ = None  # type: ignore[assignment]     # like a list

    def __repr__(self) -> str:
        return repr(self._layers)


@outside_graphs
def collect_per_layer_gradients(model: torch.nn.Module, small: float = SMALL, large: float = LARGE) -> LayerGradients:
    """Statistics of each parameter with a gradient, in the order of named_parameters; a shared one once, by its first
    name.

    Call it after backward and before clipping, outside of compiled functions. Inside, the call is one graph break (an
    error with fullgraph=True), and no recompile unless compiled code reads the result. Gradients and weights need one
    transfer per device.
    """
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.grad is not None]
    gradients = [measurable(f"the gradient of {name}", parameter.grad) for name, parameter in named]
    weights = [measurable(name, parameter) for name, parameter in named]
    table_PS = rows([*gradients, *weights], small=small, large=large)
    return LayerGradients(
        _layer(name, table_PS[index], table_PS[len(named) + index]) for index, (name, _) in enumerate(named)
    )


def _layer(name: str, grad_S: Any, weight_S: Any) -> LayerGradientStats:
    grad, weight = grad_S.tolist(), weight_S.tolist()
    num_elements = max(grad[Stat.NUM_ELEMENTS], 1.0)    # without elements every fraction is 0
    return LayerGradientStats(
        layer_name=name, param_count=int(grad[Stat.NUM_ELEMENTS]),
        grad_norm=grad[Stat.NORM], grad_mean=grad[Stat.MEAN], grad_std=grad[Stat.STD],
        grad_min=grad[Stat.MIN], grad_max=grad[Stat.MAX],
        zero_fraction=grad[Stat.NUM_ZERO] / num_elements, small_fraction=grad[Stat.NUM_SMALL] / num_elements,
        large_fraction=grad[Stat.NUM_LARGE] / num_elements,
        nan_count=int(grad[Stat.NUM_NAN]), inf_count=int(grad[Stat.NUM_INF]),
        weight_norm=weight[Stat.NORM], weight_mean=weight[Stat.MEAN], weight_std=weight[Stat.STD],
        weight_min=weight[Stat.MIN], weight_max=weight[Stat.MAX],
    )


def layer_score(layer: LayerGradientStats) -> float:
    """A health score from 1 (healthy) to 0 (dead or not finite)."""
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
    dead_layers: tuple[str, ...]            # almost all gradient elements are zero
    exploding_layers: tuple[str, ...]       # many gradient elements are large, or one is infinite
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
