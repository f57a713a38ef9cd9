"""One observation of a training, with the series names of its numbers (docs/metrics.md).   P tensors, S statistics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchtriage.recording.series import (
    GRAD_INF,
    GRAD_LARGE_FRACTION,
    GRAD_MAX_ABS,
    GRAD_MEAN,
    GRAD_NAN,
    GRAD_SMALL_FRACTION,
    GRAD_STD,
    GRAD_ZERO_FRACTION,
    SHARD,
    WEIGHT_INF,
    WEIGHT_NAN,
)
from torchtriage.telemetry.statistics.columns import Stat

_SCALED = [Stat.NORM, Stat.MEAN, Stat.STD, Stat.MIN, Stat.MAX, Stat.MAX_ABS]
IF_ANY = (GRAD_NAN, GRAD_INF, WEIGHT_NAN, WEIGHT_INF)       # quantities that exist only if one is not zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The numbers of one sampled step. `values` are totals; `grad_PS` and `weight_PS` are tables of Stat.

    The row of a tensor without a gradient or weight has no elements.
    """

    step: int
    time: float
    values: Mapping[str, float] = field(default_factory=dict)
    names: Sequence[str] = ()
    grad_PS: Any = None
    weight_PS: Any = None
    has_tensors: bool = True        # otherwise only totals, and which tensors contain NaN or Inf
    is_detailed: bool = False       # all statistics of every gradient
    histograms: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shard_P: Any = None             # whether the row of a tensor covers only this rank's part of it; None: no row does
    # By quantity (values, which tensors have one); unknown quantities are left out.
    columns: Mapping[str, tuple[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        columns: dict[str, tuple[Any, Any]] = {}
        for side, table_PS in (("grad", self.grad_PS), ("weight", self.weight_PS)):
            if table_PS is None:
                continue
            valid_P = table_PS[:, Stat.NUM_ELEMENTS] > 0
            if self.has_tensors:
                columns[f"{side}_norm"] = norms(table_PS), valid_P
            if _has_bad(table_PS):
                for word, stat in (("nan", Stat.NUM_NAN), ("inf", Stat.NUM_INF)):
                    if np.count_nonzero(table_PS[:, stat]):
                        columns[f"{side}_{word}"] = table_PS[:, stat], valid_P
            if side == "grad" and self.has_tensors:
                columns |= _gradient_columns(table_PS, valid_P, self.is_detailed)
        if self.shard_P is not None:
            columns = _split_by_shard(columns, self.shard_P)
        object.__setattr__(self, "columns", columns)

    def tensors(self) -> dict[str, dict[str, float]]:
        """The quantities of each tensor by name, as the rules read them."""
        rows: dict[str, dict[str, float]] = {name: {} for name in self.names}
        for quantity, (values_P, valid_P) in self.columns.items():
            for name, value, is_valid in zip(self.names, values_P.tolist(), valid_P.tolist(), strict=True):
                if is_valid:
                    rows[name][quantity] = value
        return {name: row for name, row in rows.items() if row}

    def flat(self) -> dict[str, float]:
        """Every number by the name of its series."""
        values = dict(self.values)
        for name, row in self.tensors().items():
            for quantity, value in row.items():
                values[f"{quantity}/{name}"] = value
        return values


def _gradient_columns(table_PS: Any, valid_P: Any, is_detailed: bool) -> dict[str, tuple[Any, Any]]:
    elements_P = np.maximum(table_PS[:, Stat.NUM_ELEMENTS], 1)
    columns = {GRAD_ZERO_FRACTION: (table_PS[:, Stat.NUM_ZERO] / elements_P, valid_P)}
    if is_detailed:
        num_small_P, num_large_P = table_PS[:, Stat.NUM_SMALL], table_PS[:, Stat.NUM_LARGE]
        columns |= {
            GRAD_SMALL_FRACTION: (num_small_P / elements_P, valid_P & ~np.isnan(num_small_P)),
            GRAD_LARGE_FRACTION: (num_large_P / elements_P, valid_P & ~np.isnan(num_large_P)),
            GRAD_MEAN: (table_PS[:, Stat.MEAN], valid_P), GRAD_STD: (table_PS[:, Stat.STD], valid_P),
            GRAD_MAX_ABS: (table_PS[:, Stat.MAX_ABS], valid_P),
        }
    return columns


def _split_by_shard(columns: Mapping[str, tuple[Any, Any]], shard_P: Any) -> dict[str, tuple[Any, Any]]:
    """Give statistics of a shard another name than those of a full tensor; but a NaN in a shard is one in the tensor.
    """
    split: dict[str, tuple[Any, Any]] = {}
    for quantity, (values_P, valid_P) in columns.items():
        if quantity in IF_ANY:
            names = {quantity: valid_P}
        else:
            names = {quantity: valid_P & ~shard_P, SHARD + quantity: valid_P & shard_P}
        for name, valid_side_P in names.items():
            if valid_side_P.any():
                split[name] = values_P, valid_side_P
    return split


def norms(table_PS: Any) -> Any:
    """The norm of each tensor: NaN if it contains a NaN, else Inf if it contains an infinity."""
    if not _has_bad(table_PS):
        return table_PS[:, Stat.NORM]
    norm_P = np.where(table_PS[:, Stat.NUM_INF] > 0, np.inf, table_PS[:, Stat.NORM])
    return np.where(table_PS[:, Stat.NUM_NAN] > 0, np.nan, norm_P)


def total_norm(table_PS: Any) -> float | None:
    """The norm of all tensors as one; None if there are none."""
    if not np.count_nonzero(table_PS[:, Stat.NUM_ELEMENTS]):
        return None
    if _has_bad(table_PS):
        return math.nan if np.count_nonzero(table_PS[:, Stat.NUM_NAN]) else math.inf
    return math.hypot(*table_PS[:, Stat.NORM].tolist())     # without overflow or underflow of squares


def _has_bad(table_PS: Any) -> bool:
    return bool(np.count_nonzero(table_PS[:, Stat.NUM_NAN : Stat.NUM_INF + 1]))


def unscaled(table_PS: Any, scale: float) -> Any:
    """Remove the scale of GradScaler from a table of gradients.

    Small and large elements were counted with it, so their number is unknown.
    """
    table_PS = table_PS.copy()
    if scale > 0 and math.isfinite(scale):
        table_PS[:, _SCALED] /= scale
    table_PS[:, [Stat.NUM_SMALL, Stat.NUM_LARGE]] = np.nan
    return table_PS
