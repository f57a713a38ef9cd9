"""Finds NaN or infinite values in a model's weights, its gradients or its loss."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.telemetry.gradients.collect import Measurable, measurable, outside_graphs, rows
from torchtriage.telemetry.statistics.columns import Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericalStability:
    """Names of affected parameters, in the order of named_parameters; max-abs describes the finite elements."""

    nan_weights: tuple[str, ...]
    inf_weights: tuple[str, ...]
    nan_gradients: tuple[str, ...]
    inf_gradients: tuple[str, ...]
    weight_max_abs: Mapping[str, float]
    gradient_max_abs: Mapping[str, float]       # of parameters that have a gradient
    loss: float | None                          # None if none was given; infinity of either sign is inf

    @property
    def loss_is_finite(self) -> bool:
        return self.loss is None or math.isfinite(self.loss)

    @property
    def has_nan(self) -> bool:
        return bool(self.nan_weights or self.nan_gradients) or (self.loss is not None and math.isnan(self.loss))

    @property
    def has_inf(self) -> bool:
        return bool(self.inf_weights or self.inf_gradients) or (self.loss is not None and math.isinf(self.loss))

    @property
    def is_stable(self) -> bool:
        return not self.has_nan and not self.has_inf

    @property
    def max_weight(self) -> float:
        return max(self.weight_max_abs.values(), default=0.0)

    @property
    def max_gradient(self) -> float:
        return max(self.gradient_max_abs.values(), default=0.0)


@outside_graphs
def check_numerical_stability(model: torch.nn.Module, loss: torch.Tensor | float | None = None) -> NumericalStability:
    """Check weights, gradients and loss in one transfer per device; they may be on different devices."""
    named = list(model.named_parameters())
    with_gradient = [(name, parameter.grad) for name, parameter in named if parameter.grad is not None]
    items = [measurable(name, parameter) for name, parameter in named]
    items += [measurable(f"the gradient of {name}", gradient) for name, gradient in with_gradient]
    items += [_loss(loss)] if isinstance(loss, torch.Tensor) else []
    table_PS = rows(items)
    weights_PS, gradients_PS = table_PS[: len(named)], table_PS[len(named) : len(named) + len(with_gradient)]
    weight_names, gradient_names = [name for name, _ in named], [name for name, _ in with_gradient]
    return NumericalStability(
        nan_weights=_having(Stat.NUM_NAN, weight_names, weights_PS),
        inf_weights=_having(Stat.NUM_INF, weight_names, weights_PS),
        nan_gradients=_having(Stat.NUM_NAN, gradient_names, gradients_PS),
        inf_gradients=_having(Stat.NUM_INF, gradient_names, gradients_PS),
        weight_max_abs=dict(zip(weight_names, weights_PS[:, Stat.MAX_ABS].tolist(), strict=True)),
        gradient_max_abs=dict(zip(gradient_names, gradients_PS[:, Stat.MAX_ABS].tolist(), strict=True)),
        loss=_value(table_PS[-1]) if isinstance(loss, torch.Tensor) else _float(loss),
    )


def _float(loss: float | None) -> float | None:
    return None if loss is None else float(loss)


def _loss(loss: torch.Tensor) -> Measurable:
    if loss.numel() != 1:
        raise ValueError(
            f"the loss must be one number, got shape {tuple(loss.shape)}; "
            "give loss.mean(), or the tensor that backward was called on"
        )
    return measurable("the loss", loss)


def _having(count: Stat, names: list[str], table_PS: Any) -> tuple[str, ...]:
    return tuple(name for name, number in zip(names, table_PS[:, count].tolist(), strict=True) if number)


def _value(row_S: Any) -> float:
    """The value of a tensor with one element."""
    if row_S[Stat.NUM_NAN]:
        return math.nan
    return math.inf if row_S[Stat.NUM_INF] else float(row_S[Stat.MIN])
