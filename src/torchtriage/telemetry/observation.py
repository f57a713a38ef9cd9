"""What one observation of a training holds, and the names under which it is known: docs/metrics.md.   P tensors, S statistics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchtriage.telemetry.table import Stat, total, true_norm

_SCALED = [Stat.NORM, Stat.MEAN, Stat.STD, Stat.MIN, Stat.MAX, Stat.MAX_ABS]
# Quantities of a tensor: always there, only if any is not zero, and only at level DEBUG.
ALWAYS = ("grad_norm", "weight_norm", "grad_zero_fraction")
IF_ANY = ("grad_nan", "grad_inf", "weight_nan", "weight_inf")
DETAIL = ("grad_small_fraction", "grad_large_fraction", "grad_mean", "grad_std", "grad_max_abs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """`grad_PS` and `weight_PS` are tables of Stat, a row without elements for a tensor that had none; `values` are of the whole."""

    step: int
    time: float
    values: Mapping[str, float] = field(default_factory=dict)
    names: Sequence[str] = ()
    grad_PS: Any = None
    weight_PS: Any = None
    is_detailed: bool = False
    histograms: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def columns(self) -> dict[str, tuple[Any, Any]]:
        """By quantity of a tensor (values, which tensors have one); quantities that nothing is known of are left out."""
        found: dict[str, tuple[Any, Any]] = {}
        for side, table_PS in (("grad", self.grad_PS), ("weight", self.weight_PS)):
            if table_PS is None:
                continue
            seen_P = table_PS[:, Stat.NUM_ELEMENTS] > 0
            found[f"{side}_norm"] = norms(table_PS), seen_P
            for word, stat in (("nan", Stat.NUM_NAN), ("inf", Stat.NUM_INF)):
                if table_PS[:, stat].any():
                    found[f"{side}_{word}"] = table_PS[:, stat], seen_P
            if side == "grad":
                found |= _more(table_PS, seen_P, self.is_detailed)
        return found

    def tensors(self) -> dict[str, dict[str, float]]:
        """By tensor what is known of it, as the rules take it."""
        found: dict[str, dict[str, float]] = {name: {} for name in self.names}
        for quantity, (values_P, seen_P) in self.columns().items():
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
    found = {"grad_zero_fraction": (table_PS[:, Stat.NUM_ZERO] / elements_P, seen_P)}
    if is_detailed:
        found |= {
            "grad_small_fraction": (table_PS[:, Stat.NUM_SMALL] / elements_P, seen_P & ~np.isnan(table_PS[:, Stat.NUM_SMALL])),
            "grad_large_fraction": (table_PS[:, Stat.NUM_LARGE] / elements_P, seen_P & ~np.isnan(table_PS[:, Stat.NUM_LARGE])),
            "grad_mean": (table_PS[:, Stat.MEAN], seen_P), "grad_std": (table_PS[:, Stat.STD], seen_P),
            "grad_max_abs": (table_PS[:, Stat.MAX_ABS], seen_P),
        }
    return found


def norms(table_PS: Any) -> Any:
    """The norm of each tensor: NaN with a NaN in it, Inf with an infinity."""
    norm_P = np.where(table_PS[:, Stat.NUM_INF] > 0, np.inf, table_PS[:, Stat.NORM])
    return np.where(table_PS[:, Stat.NUM_NAN] > 0, np.nan, norm_P)


def whole_norm(table_PS: Any) -> float | None:
    """The norm of all tensors as one; None if there are none."""
    rows_PS = table_PS[table_PS[:, Stat.NUM_ELEMENTS] > 0]
    return true_norm(total(rows_PS)) if len(rows_PS) else None


def unscaled(table_PS: Any, scale: float) -> Any:
    """The table of gradients that still hold the scale of GradScaler; how many are small or large was counted with it, so it is unknown."""
    table_PS = table_PS.copy()
    if scale > 0 and math.isfinite(scale):
        table_PS[:, _SCALED] /= scale
    table_PS[:, [Stat.NUM_SMALL, Stat.NUM_LARGE]] = np.nan
    return table_PS
