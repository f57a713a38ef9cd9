"""Metrics of an update: kept on the device, reduced over its minibatches, read once.

Shape suffixes: K minibatches, M metrics.
"""

import enum
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchtriage.errors import TriageError


class Reduce(enum.Enum):
    """How the numbers of several minibatches become one."""

    MEAN = "mean"  # weighted by the number of live rows, which is smaller in a padded minibatch
    MAX = "max"
    MIN = "min"
    FIRST = "first"
    SUM = "sum"


# The metrics of a minibatch; docs/metrics.md lists the rules that read them.
METRICS: dict[str, Reduce] = {
    "loss": Reduce.MEAN,
    "policy_loss": Reduce.MEAN,
    "value_loss": Reduce.MEAN,
    "entropy_nats": Reduce.MEAN,
    "kl": Reduce.MEAN,
    "clip_fraction": Reduce.MEAN,
    "ratio_max": Reduce.MAX,
    "ratio_min": Reduce.MIN,
    "first_ratio_deviation": Reduce.FIRST,
    "value_clip_fraction": Reduce.MEAN,
    "grad_norm": Reduce.MEAN,
    "early_stopped": Reduce.MAX,
    "minibatches_skipped": Reduce.SUM,
    "rows": Reduce.SUM,
    "minibatches": Reduce.SUM,  # 0 without a live row, or once the update was stopped: such a minibatch is ignored
}
OF_ROLLOUT = ("explained_variance", "returns_std", "advantage_std", "bellman_error")
_ROWS, _MINIBATCHES = (list(METRICS).index(name) for name in ("rows", "minibatches"))


def packed(values: Mapping[str, Tensor]) -> Tensor:
    """The metrics of a minibatch as one tensor [M], in the order of METRICS; the names must be exactly those."""
    if values.keys() != METRICS.keys():
        unknown, missing = sorted(values.keys() - METRICS.keys()), sorted(METRICS.keys() - values.keys())
        raise TriageError(
            f"a minibatch must give the metrics {', '.join(METRICS)}; not declared: {unknown}, missing: {missing}; "
            "declare in METRICS how a metric is reduced"
        )
    return torch.stack([values[name].float() for name in METRICS])


class MetricTable:
    """One row for the rollout and one per minibatch; allocated once, and doubled when it is full."""

    def __init__(self, device: torch.device, length: int = 64) -> None:
        self._table_KM = torch.zeros(length, len(METRICS), device=device)
        self._rows = self._table_KM.unbind()
        self._count = 0

    def begin(self, values: Mapping[str, Tensor]) -> None:
        """Start a new update; `values` are the metrics of its rollout."""
        self._count = 1
        self._rows[0][: len(OF_ROLLOUT)].copy_(torch.stack([values[name] for name in OF_ROLLOUT]))

    def add(self, row_M: Tensor) -> None:
        if self._count == len(self._rows):
            self._table_KM = torch.cat([self._table_KM, torch.zeros_like(self._table_KM)])
            self._rows = self._table_KM.unbind()
        self._rows[self._count].copy_(row_M)
        self._count += 1

    def read(self) -> dict[str, float]:
        """The metrics by name; the only transfer from the device."""
        table_KM: Any = self._table_KM[: self._count].numpy(force=True).astype(np.float64)
        return reduced(table_KM[1:]) | dict(zip(OF_ROLLOUT, table_KM[0].tolist(), strict=False))


def reduced(table_KM: Any) -> dict[str, float]:
    """One number per metric, over the minibatches that count; {} if there are none."""
    table_KM = table_KM[table_KM[:, _MINIBATCHES] > 0]
    if not len(table_KM):
        return {}
    share_K = table_KM[:, _ROWS] / max(1.0, table_KM[:, _ROWS].sum())
    return {
        name: float(_reduce(how, column_K, share_K))
        for (name, how), column_K in zip(METRICS.items(), table_KM.T, strict=True)
    }


def _reduce(how: Reduce, column_K: Any, share_K: Any) -> Any:
    match how:
        case Reduce.MEAN:
            return column_K @ share_K
        case Reduce.MAX:
            return column_K.max()
        case Reduce.MIN:
            return column_K.min()
        case Reduce.FIRST:
            return column_K[0]
        case Reduce.SUM:
            return column_K.sum()
