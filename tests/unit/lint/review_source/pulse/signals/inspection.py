"""Slow, detailed statistics for the moment when an alarm was raised."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(slots=True)
class LayerReport:
    layer: str
    grad_norm: float
    grad_mean: float
    grad_std: float
    weight_norm: float
    weight_std: float


def inspect_layers(network: nn.Module) -> list[LayerReport]:
    """One report per parameter that has a gradient, with one read from the device."""
    labels: list[str] = []
    rows: list[torch.Tensor] = []
    for label, weight in network.named_parameters():
        if weight.grad is None:
            continue
        slope = weight.grad.detach()
        labels.append(label)
        rows.append(torch.stack([
            torch.linalg.vector_norm(slope), slope.mean(), slope.std(correction=0),
            torch.linalg.vector_norm(weight.detach()), weight.detach().std(correction=0),
        ]))
    if not rows:
        return []
    table = torch.stack(rows).tolist()
    return [LayerReport(label, *row) for label, row in zip(labels, table, strict=True)]


@dataclass(slots=True)
class SoundnessReport:
    nan_weights: list[str]
    inf_weights: list[str]

    @property
    def is_sound(self) -> bool:
        return not self.nan_weights and not self.inf_weights


def inspect_soundness(network: nn.Module) -> SoundnessReport:
    """Names the weights that hold NaN or infinity."""
    report = SoundnessReport([], [])
    for label, weight in network.named_parameters():
        if torch.isnan(weight.data).any():
            report.nan_weights.append(label)
        if torch.isinf(weight.data).any():
            report.inf_weights.append(label)
    return report


@dataclass(slots=True)
class RatioReport:
    worst: list[int]
    values: list[float]

    @classmethod
    def of_batch(
        cls,
        ratios: torch.Tensor,
        states: torch.Tensor,
        action_masks: torch.Tensor | None = None,
        upper: float = 5.0,
        lower: float = 0.1,
    ) -> "RatioReport":
        """The entries outside of the limits; the states and masks are for later."""
        flat = ratios.flatten()
        outside = (flat > upper) | (flat < lower)
        index = outside.nonzero(as_tuple=True)[0]
        return cls(worst=index.tolist(), values=flat[index].tolist())
