"""One tensor at one observation: NaN and Inf, gradients of zero, weights that stay as they are; pure functions."""

import array
import math
from collections.abc import Iterator, Mapping

from torchtriage.diagnosis.learning.limits import LearningLimits
from torchtriage.diagnosis.learning.memory import Streak, TensorMemory
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.recording.series import (
    GRAD_INF,
    GRAD_LARGE_FRACTION,
    GRAD_NAN,
    GRAD_NORM,
    GRAD_SMALL_FRACTION,
    GRAD_ZERO_FRACTION,
    WEIGHT_INF,
    WEIGHT_NAN,
    WEIGHT_NORM,
    series_of,
)

# What may be known of a tensor: the first part of the name of its series, `grad_norm/fc.weight`.
TENSOR_QUANTITIES = (
    GRAD_NORM, WEIGHT_NORM, GRAD_NAN, GRAD_INF, WEIGHT_NAN, WEIGHT_INF, GRAD_ZERO_FRACTION, GRAD_SMALL_FRACTION,
    GRAD_LARGE_FRACTION,
)
LAST_NORM = "last_grad_norm"    # in place of a `grad_norm` that was not kept for this step


def is_well(row: Mapping[str, float], last_weight: float | None, limits: LearningLimits) -> bool:
    """Whether no rule can have a word to say of a tensor that was well before: there may be thousands, at every step."""
    norm, weight = row.get(GRAD_NORM, 1.0), row.get(WEIGHT_NORM, 1.0)
    if not (0.0 < norm < math.inf and 0.0 <= weight < math.inf):
        return False
    if row.get(GRAD_NAN) or row.get(GRAD_INF) or row.get(WEIGHT_NAN) or row.get(WEIGHT_INF):
        return False
    if last_weight is not None and abs(weight - last_weight) <= max(limits.unchanged_rtol, 1e-6) * weight:
        return False
    return not (
        row.get(GRAD_ZERO_FRACTION, 0.0) > limits.zero_fraction_max or row.get(GRAD_LARGE_FRACTION, 0.0) > limits.large_fraction_max
        or row.get(GRAD_SMALL_FRACTION, 0.0) > limits.small_fraction_max
    )


def float32(value: float) -> float:
    """As a recording keeps it, so that a run and its recording agree on what is equal."""
    return array.array("f", (value,))[0]


def remembered(
    row: Mapping[str, float], before: TensorMemory, last_weight: float | None, is_float16: bool, limits: LearningLimits,
) -> TensorMemory:
    """What the values of one tensor make of what was remembered of it; a value that is not given changes nothing."""
    norm, zeros, weight = row.get(GRAD_NORM), row.get(GRAD_ZERO_FRACTION), row.get(WEIGHT_NORM)
    is_zero = norm == 0.0 if norm is not None else zeros == 1.0
    zero, unchanged = before.zero, before.unchanged
    if norm is not None or zeros is not None:
        zero = zero.after(beyond=is_zero, patience=limits.zero_patience)
    if weight is not None:
        same = last_weight is not None and abs(float32(weight) - float32(last_weight)) <= limits.unchanged_rtol * abs(weight)
        unchanged = unchanged.after(beyond=same and 0.0 < _pull(row) < math.inf, patience=limits.unchanged_patience)

    def above(streak: Streak, value: float | None, limit: float) -> Streak:
        return streak if value is None else streak.after(beyond=value > limit and not is_zero, patience=limits.fraction_patience)

    return TensorMemory(
        zero=zero, unchanged=unchanged, mostly_zero=above(before.mostly_zero, zeros, limits.zero_fraction_max),
        large=above(before.large, row.get(GRAD_LARGE_FRACTION), limits.large_fraction_max),
        small=above(before.small, row.get(GRAD_SMALL_FRACTION) if is_float16 else None, limits.small_fraction_max),
    )


def _pull(row: Mapping[str, float]) -> float:
    """The norm of the gradient, or the last one before: series that were thinned out do not keep the same steps."""
    return row.get(GRAD_NORM, row.get(LAST_NORM, 0.0))


def tensor_finite(name: str, row: Mapping[str, float]) -> Iterator[Breach]:
    """NaN and Inf, by count; a norm that is not finite tells the same where nobody counted."""
    for code, what, side in (("TT402", "gradient", "grad"), ("TT403", "weight", "weight")):
        norm = row.get(f"{side}_norm", 0.0)
        counts = {kind: row.get(f"{side}_{kind}", 0.0) for kind in ("nan", "inf")}
        counted = [f"{count:.0f} {word}" for word, count in (("NaN", counts["nan"]), ("Inf", counts["inf"])) if count > 0]
        if counted or not math.isfinite(norm):
            is_nan = counts["nan"] > 0 or math.isnan(norm)
            quantity = f"{side}_nan" if counts["nan"] else f"{side}_inf" if counts["inf"] else f"{side}_norm"
            yield Breach(
                code=code, type="numerical_instability", quantity=f"{quantity}/{name}", subject=name,
                value=math.nan if is_nan else math.inf, limit=math.inf,
                text=f"{' and '.join(counted) or short(norm)} in the {what} of {name}",
            )


def tensor_breaches(name: str, row: Mapping[str, float], now: TensorMemory, limits: LearningLimits) -> Iterator[Breach]:
    """`now`: what is remembered with this row taken in."""
    yield from tensor_finite(name, row)
    if now.zero.is_active and (GRAD_NORM in row or GRAD_ZERO_FRACTION in row):
        yield Breach(
            code="TT406", type="gradient_zero", quantity=series_of(GRAD_NORM, name), subject=name, value=0.0, limit=0.0,
            text=f"the gradient of {name} is zero everywhere",
        )
    if now.unchanged.is_active and WEIGHT_NORM in row:
        weight = row[WEIGHT_NORM]
        yield Breach(
            code="TT416", type="weight_unchanged", quantity=series_of(WEIGHT_NORM, name), subject=name, value=weight, limit=0.0,
            text=f"the norm of {name} stays at {short(weight)} while that of its gradient is {short(_pull(row))}",
        )
    for code, type, quantity, streak, limit, what in (
        ("TT417", "gradient_mostly_zero", GRAD_ZERO_FRACTION, now.mostly_zero, limits.zero_fraction_max, "zero"),
        ("TT418", "gradient_large", GRAD_LARGE_FRACTION, now.large, limits.large_fraction_max, "large"),
        ("TT419", "gradient_underflow", GRAD_SMALL_FRACTION, now.small, limits.small_fraction_max, "all but lost in float16"),
    ):
        if streak.is_active and quantity in row:
            yield Breach(
                code=code, type=type, quantity=f"{quantity}/{name}", subject=name, value=row[quantity], limit=limit,
                text=f"{row[quantity]:.1%} of the gradient of {name} is {what}",
            )
