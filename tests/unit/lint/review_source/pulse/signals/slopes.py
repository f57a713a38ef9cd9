"""Gradient numbers of a growing part of the network, collected without waiting for the device."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(slots=True)
class SlopeSummary:
    norm: float
    health: float
    vanishing: bool
    exploding: bool
    nan_count: int
    inf_count: int
    smallest: float
    largest: float


class SlopeCollector:
    """Starts the measurement on the device and reads the result when somebody asks."""

    def __init__(self, vanishing_below: float = 1e-7, exploding_above: float = 100.0) -> None:
        self.vanishing_below = vanishing_below
        self.exploding_above = exploding_above

    def start(self, weights: Iterable[nn.Parameter]) -> dict[str, Any]:
        slopes = [w.grad for w in weights if w.grad is not None]
        if not slopes:
            return {"count": 0}
        lengths = torch._foreach_norm(slopes, ord=2)
        together = torch.stack(lengths)
        return {
            "count": len(slopes),
            "squared": (together ** 2).sum(),
            "vanishing": (together < self.vanishing_below).sum(),
            "exploding": (together > self.exploding_above).sum(),
        }

    def finish(self, started: dict[str, Any]) -> dict[str, float | bool]:
        n_slopes = started["count"]
        if n_slopes == 0:
            return {"norm": 0.0, "health": 1.0, "vanishing": False, "exploding": False}
        squared, vanishing, exploding = torch.stack(
            [started["squared"], started["vanishing"].float(), started["exploding"].float()]
        ).tolist()
        length = (squared ** 0.5) / n_slopes
        health = 1.0 - (vanishing + exploding) / n_slopes
        return {"norm": length, "health": health, "vanishing": vanishing > 0, "exploding": exploding > 0}


def gather_slopes(
    weights: Iterable[nn.Parameter],
    vanishing_below: float = 1e-7,
    exploding_above: float = 100.0,
    full: bool = False,
) -> SlopeSummary | dict[str, float]:
    """The same numbers at once, with more of them if `full`."""
    found = [w.grad for w in weights if w.grad is not None]
    if not found:
        return {"norm": 0.0, "health": 1.0}
    sizes = torch._foreach_norm(found, ord=2)
    stacked = torch.stack(sizes)
    squared = (stacked ** 2).sum()
    weak = (stacked < vanishing_below).sum()
    strong = (stacked > exploding_above).sum()

    # Counting over one long tensor avoids a kernel for each gradient.
    joined = torch.cat([slope.view(-1) for slope in found])
    nans = torch.isnan(joined).sum()
    infs = torch.isinf(joined).sum()
    values = torch.stack([squared, weak.float(), strong.float(), nans.float(), infs.float(), joined.min(), joined.max()])
    sq, n_weak, n_strong, n_nan, n_inf, low, high = values.tolist()

    health = max(0.0, 1.0 - (n_weak + n_strong) / len(found))
    if full:
        return SlopeSummary(
            norm=sq ** 0.5, health=health, vanishing=n_weak > 0, exploding=n_strong > 0,
            nan_count=int(n_nan), inf_count=int(n_inf), smallest=low, largest=high,
        )
    return {"norm": sq ** 0.5, "health": health}
