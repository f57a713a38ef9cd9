"""Norm, mean, spread, extremes and counts of many tensors at once: the one interface to all of it."""

from collections.abc import Sequence
from typing import Any

import torch

from torchtriage.telemetry.plan import Plan, TensorPlan
from torchtriage.telemetry.table import LARGE, NUM_STATS, SMALL, Stat, total, true_norm

__all__ = ["LARGE", "NUM_STATS", "SMALL", "Plan", "Stat", "TensorPlan", "statistics", "total", "true_norm"]


def statistics(
    tensors: Sequence[torch.Tensor], *, small: float = SMALL, large: float = LARGE, names: Sequence[str] = (), path: str = "",
) -> Any:
    """A fresh float64 array [P, len(Stat)], one row a tensor; one transfer a device. For the same tensors at every step make a Plan."""
    names = names or [f"tensor {i}" for i in range(len(tensors))]
    return TensorPlan(names, small=small, large=large, path=path).run(list(tensors))
