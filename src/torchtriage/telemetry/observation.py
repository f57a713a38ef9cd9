"""What one observation of a training holds, and the names under which it is known: docs/metrics.md.   P tensors, S statistics."""

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
IF_ANY = (GRAD_NAN, GRAD_INF, WEIGHT_NAN, WEIGHT_INF)       # quantities that are there only if any is not zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """`grad_PS` and `weight_PS` are tables of Stat, a row without elements for a tensor that had none; `values` are of the whole."""

    step: int
    time: float
    values: Mapping[str, float] = field(default_factory=dict)
    names: Sequence[str] = ()
    grad_PS: Any = None
    weight_PS: Any = None
    has_tensors: bool = True        # else only totals, and which tensors hold NaN or Inf
    is_detailed: bool = False       # all statistics of every gradient
    histograms: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shard_P: Any = None             # whether the row of a tensor is only of what this rank holds of it; None: no row is
    # By quantity of a tensor (values, which tensors have one); quantities that nothing is known of are left out.
    columns: Mapping[str, tuple[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        found: dict[str, tuple[Any, Any]] = {}
        for side, table_PS in (("grad", self.grad_PS), ("weight", self.weight_PS)):
            if table_PS is None:
                continue
            seen_P = table_PS[:, Stat.NUM_ELEMENTS] > 0
            if self.has_tensors:
                found[f"{side}_norm"] = norms(table_PS), seen_P
            for word, stat in (("nan", Stat.NUM_NAN), ("inf", Stat.NUM_INF)) if _has_bad(table_PS) else ():
                if np.count_nonzero(table_PS[:, stat]):
                    found[f"{side}_{word}"] = table_PS[:, stat], seen_P
            if side == "grad" and self.has_tensors:
                found |= _more(table_PS, seen_P, self.is_detailed)
        object.__setattr__(self, "columns", found if self.shard_P is None else _told_apart(found, self.shard_P))

    def tensors(self) -> dict[str, dict[str, float]]:
        """By tensor what is known of it, as the rules take it."""
        found: dict[str, dict[str, float]] = {name: {} for name in self.names}
        for quantity, (values_P, seen_P) in self.columns.items():
            for name, value, seen in zip(self.names, values_P.tolist(), seen_P.tolist(), strict=True):
                if seen:
                    found[name][quantity] = value
        return {name: row for name, row in found.items() if row}

    def flat(self) -> dict[str, float]:
        """Every number by the name of its series."""
        rows = self.tensors()
        return {**self.values, **{f"{quantity}/{name}": value for name, row in rows.items() for quantity, value in row.items()}}


def _more(table_PS: Any, seen_P: Any, is_detailed: bool) -> dict[str, tuple[Any, Any]]:
    elements_P = np.maximum(table_PS[:, Stat.NUM_ELEMENTS], 1)
    found = {GRAD_ZERO_FRACTION: (table_PS[:, Stat.NUM_ZERO] / elements_P, seen_P)}
    if is_detailed:
        found |= {
            GRAD_SMALL_FRACTION: (table_PS[:, Stat.NUM_SMALL] / elements_P, seen_P & ~np.isnan(table_PS[:, Stat.NUM_SMALL])),
            GRAD_LARGE_FRACTION: (table_PS[:, Stat.NUM_LARGE] / elements_P, seen_P & ~np.isnan(table_PS[:, Stat.NUM_LARGE])),
            GRAD_MEAN: (table_PS[:, Stat.MEAN], seen_P), GRAD_STD: (table_PS[:, Stat.STD], seen_P),
            GRAD_MAX_ABS: (table_PS[:, Stat.MAX_ABS], seen_P),
        }
    return found


def _told_apart(columns: Mapping[str, tuple[Any, Any]], shard_P: Any) -> dict[str, tuple[Any, Any]]:
    """What is of a part has another name than what is of the whole; but a NaN in a part is one in the whole."""
    found: dict[str, tuple[Any, Any]] = {}
    for quantity, (values_P, seen_P) in columns.items():
        sides = {quantity: seen_P} if quantity in IF_ANY else {quantity: seen_P & ~shard_P, SHARD + quantity: seen_P & shard_P}
        found |= {name: (values_P, of_P) for name, of_P in sides.items() if of_P.any()}
    return found


def norms(table_PS: Any) -> Any:
    """The norm of each tensor: NaN with a NaN in it, Inf with an infinity."""
    if not _has_bad(table_PS):
        return table_PS[:, Stat.NORM]
    norm_P = np.where(table_PS[:, Stat.NUM_INF] > 0, np.inf, table_PS[:, Stat.NORM])
    return np.where(table_PS[:, Stat.NUM_NAN] > 0, np.nan, norm_P)


def whole_norm(table_PS: Any) -> float | None:
    """The norm of all tensors as one; None if there are none."""
    if not np.count_nonzero(table_PS[:, Stat.NUM_ELEMENTS]):
        return None
    if _has_bad(table_PS):
        return math.nan if np.count_nonzero(table_PS[:, Stat.NUM_NAN]) else math.inf
    return math.hypot(*table_PS[:, Stat.NORM].tolist())     # squares neither overflow nor vanish in it


def _has_bad(table_PS: Any) -> bool:
    return bool(np.count_nonzero(table_PS[:, Stat.NUM_NAN : Stat.NUM_INF + 1]))


def unscaled(table_PS: Any, scale: float) -> Any:
    """The table of gradients that still hold the scale of GradScaler; how many are small or large was counted with it, so it is unknown."""
    table_PS = table_PS.copy()
    if scale > 0 and math.isfinite(scale):
        table_PS[:, _SCALED] /= scale
    table_PS[:, [Stat.NUM_SMALL, Stat.NUM_LARGE]] = np.nan
    return table_PS
