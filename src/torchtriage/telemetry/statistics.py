"""Norm, mean, spread, extremes and counts of many tensors at once: the one interface to all of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torchtriage.telemetry import kernel
from torchtriage.telemetry.plan import Plan, TensorPlan
from torchtriage.telemetry.table import LARGE, NUM_STATS, SMALL, Stat, total, true_norm

__all__ = ["LARGE", "NUM_STATS", "SMALL", "Plan", "Stat", "TensorPlan", "statistics", "total", "true_norm"]

MAX_PLANS = 16      # that are kept: of calls with as many tensors as before, and they are mostly the same ones
_plans: dict[tuple[object, ...], TensorPlan] = {}


def statistics(
    tensors: Sequence[torch.Tensor], *, small: float = SMALL, large: float = LARGE, names: Sequence[str] = (), path: str = "",
) -> Any:
    """A fresh float64 array [P, len(Stat)], one row a tensor; one transfer a device. For the same tensors at every step make a Plan."""
    tensors = list(tensors)
    key = kernel.load(), path, small, large, len(tensors), len(names)
    plan = _plans.pop(key, None)        # taken out: no other thread may fill its arrays at the same time
    if plan is None:
        plan = TensorPlan(names or [f"tensor {i}" for i in range(len(tensors))], small=small, large=large, path=path)
    elif names:
        plan.names = list(names)
    table_PS = plan.run(tensors, np.empty((len(plan.names), NUM_STATS)))
    if not plan.holds_buffers:
        if len(_plans) >= MAX_PLANS:
            _plans.clear()
        _plans[key] = plan
    return table_PS
