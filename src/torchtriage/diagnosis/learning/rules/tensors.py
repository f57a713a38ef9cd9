"""TT406, TT416, TT417, TT418, TT419: the gradient or the weight of a single tensor."""

import array
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torchtriage.diagnosis.learning.memory import NO_STREAK, Memory, Streak, median
from torchtriage.diagnosis.learning.rule import Breach, Incident, LearningRule, learning_rates, limit, short, with_rate
from torchtriage.diagnosis.learning.rules.gradients import is_bias_without_effect, weight_of
from torchtriage.diagnosis.learning.rules.non_finite import tensor_values
from torchtriage.diagnosis.learning.rules.value_clipping import fix_unless_clipped
from torchtriage.recording.recording import Process, Series
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

# The first part of the name of a tensor's series, `grad_norm/fc.weight`.
TENSOR_QUANTITIES = (
    GRAD_NORM, WEIGHT_NORM, GRAD_NAN, GRAD_INF, WEIGHT_NAN, WEIGHT_INF, GRAD_ZERO_FRACTION, GRAD_SMALL_FRACTION,
    GRAD_LARGE_FRACTION,
)
LAST_NORM = "last_grad_norm"    # in place of a `grad_norm` that is not recorded for this step
ZERO_FIX = (
    "check that the loss depends on the tensor: no detach() or torch.no_grad() in between, no ReLU that is always off, "
    "no weight of 0 on its loss term; if it should not train, set requires_grad_(False)"
)
NUM_AT_END = 3                  # looks with a gradient: a single one may be by chance
FLOAT32_RTOL = 1e-6             # norms that are the same float32 differ by less than this


@dataclass(frozen=True, kw_only=True)
class TensorLimits:
    # TT406: a branch that the loss skips now and then gives zeros for a step or two.
    zero_patience: int = limit(5, sagemaker=1)

    # TT416: a norm that stays the same to the last bit of a float32.
    unchanged_patience: int = limit(20, sagemaker=3)
    unchanged_rtol: float = limit(0.0, sagemaker=1e-5)

    # TT417, TT418: shares of elements that are zero, and above 10; rules of thumb. TT419: below 1e-6 a float16 is
    # subnormal and keeps four bits or fewer. Other types have the range, so the rule does not apply to them.
    zero_fraction_max: float = 0.9
    large_fraction_max: float = 0.1
    small_fraction_max: float = 0.9
    fraction_patience: int = 5


class TensorStreaks(NamedTuple):
    """The memory of one tensor, in the order in which a state dict lists it."""

    zero: Streak = NO_STREAK
    unchanged: Streak = NO_STREAK
    mostly_zero: Streak = NO_STREAK
    large: Streak = NO_STREAK
    small: Streak = NO_STREAK


HEALTHY = TensorStreaks()


def breaches(
    name: str, row: Mapping[str, float], has_float16: bool, memory: Memory, limits: TensorLimits,
) -> Sequence[Breach]:
    """The rules of one tensor for one observation, and TT402 and TT403."""
    before, last_weight = memory.tensors.get(name), memory.weights.get(name)
    if WEIGHT_NORM in row:
        memory.weights[name] = row[WEIGHT_NORM]
    if before is None and _is_healthy(row, last_weight, limits):
        return ()
    now = _updated(TensorStreaks(*before or HEALTHY), row, last_weight, has_float16, limits)
    if now == HEALTHY:
        memory.tensors.pop(name, None)
    else:
        memory.tensors[name] = now
    return (
        *tensor_values(name, row), *_zero(name, row, now), *_unchanged(name, row, now),
        *_fractions(name, row, now, limits),
    )


def _is_healthy(row: Mapping[str, float], last_weight: float | None, limits: TensorLimits) -> bool:
    """Whether no rule can report a tensor that was healthy before: there may be thousands at every step."""
    norm, weight = row.get(GRAD_NORM, 1.0), row.get(WEIGHT_NORM, 1.0)
    if not (0.0 < norm < math.inf and 0.0 <= weight < math.inf):
        return False
    if row.get(GRAD_NAN) or row.get(GRAD_INF) or row.get(WEIGHT_NAN) or row.get(WEIGHT_INF):
        return False
    if last_weight is not None and abs(weight - last_weight) <= max(limits.unchanged_rtol, FLOAT32_RTOL) * weight:
        return False
    return not (
        row.get(GRAD_ZERO_FRACTION, 0.0) > limits.zero_fraction_max
        or row.get(GRAD_LARGE_FRACTION, 0.0) > limits.large_fraction_max
        or row.get(GRAD_SMALL_FRACTION, 0.0) > limits.small_fraction_max
    )


def may_breach(series: Mapping[str, Series], limits: TensorLimits) -> bool:
    """A quick test of the recorded series of one tensor, by quantity: there may be millions of points."""
    def values(quantity: str) -> Sequence[float]:
        return series[quantity].values if quantity in series else ()

    return (
        _may_stay_unchanged(values(WEIGHT_NORM), limits)
        or any(any(values(quantity)) for quantity in (GRAD_NAN, GRAD_INF, WEIGHT_NAN, WEIGHT_INF))
        or not all(math.isfinite(sum(values(quantity))) for quantity in (GRAD_NORM, WEIGHT_NORM))
        or min(values(GRAD_NORM), default=1.0) == 0.0
        or max(values(GRAD_ZERO_FRACTION), default=0.0) > limits.zero_fraction_max
        or max(values(GRAD_LARGE_FRACTION), default=0.0) > limits.large_fraction_max
        or max(values(GRAD_SMALL_FRACTION), default=0.0) > limits.small_fraction_max
    )


def _updated(
    before: TensorStreaks, row: Mapping[str, float], last_weight: float | None, has_float16: bool,
    limits: TensorLimits,
) -> TensorStreaks:
    """The streaks after one more observation; a quantity that is not in the row leaves its streaks unchanged."""
    norm, zeros, weight = row.get(GRAD_NORM), row.get(GRAD_ZERO_FRACTION), row.get(WEIGHT_NORM)
    is_zero = norm == 0.0 if norm is not None else zeros == 1.0
    zero, unchanged = before.zero, before.unchanged
    if norm is not None or zeros is not None:
        zero = zero.after(beyond=is_zero, patience=limits.zero_patience)
    if weight is not None:
        beyond = _is_same(weight, last_weight, limits) and 0.0 < _gradient_norm(row) < math.inf
        unchanged = unchanged.after(beyond=beyond, patience=limits.unchanged_patience)

    def above(streak: Streak, fraction: float | None, most: float) -> Streak:
        if fraction is None:
            return streak
        return streak.after(beyond=fraction > most and not is_zero, patience=limits.fraction_patience)

    small = row.get(GRAD_SMALL_FRACTION) if has_float16 else None
    return TensorStreaks(
        zero=zero,
        unchanged=unchanged,
        mostly_zero=above(before.mostly_zero, zeros, limits.zero_fraction_max),
        large=above(before.large, row.get(GRAD_LARGE_FRACTION), limits.large_fraction_max),
        small=above(before.small, small, limits.small_fraction_max),
    )


# TT406

def _zero(name: str, row: Mapping[str, float], now: TensorStreaks) -> Iterator[Breach]:
    if now.zero.is_active and (GRAD_NORM in row or GRAD_ZERO_FRACTION in row):
        yield Breach(
            code="TT406", type="gradient_zero", quantity=series_of(GRAD_NORM, name), subject=name, value=0.0, limit=0.0,
            text=f"the gradient of {name} is zero everywhere",
        )


def parents(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Gradients that became zero after updates that were too large follow from these, by code; weights that stay the
    same, from updates that are too small.
    """
    found = {"TT416": "TT409"} if incidents.keys() >= {"TT416", "TT409"} else {}
    zeros, large = incidents.get("TT406"), incidents.get("TT408")
    if zeros is None or large is None or not large.steps or not zeros.steps:
        return found
    began = _zero_since(zeros)
    return {**found, "TT406": "TT408"} if began is not None and large.steps[0] <= began else found


def _zero_since(incident: Incident) -> int | None:
    """The first step at which the gradient of the first tensor was zero, if it was not zero before."""
    series = incident.process.series.get(series_of(GRAD_NORM, incident.first.subject))
    if series is None:
        return None
    points = list(zip(series.steps, series.values, strict=False))
    place = next((i for i, (_, value) in enumerate(points) if value == 0.0), 0)
    return int(points[place][0]) if place else None


def _is_zero_weight(incident: Incident) -> bool:
    """Whether the weights of these tensors are zero too, as far as they were looked at."""
    norms = [incident.process.series.get(series_of(WEIGHT_NORM, name)) for name in incident.subjects]
    first = [series.values[0] for series in norms if series is not None and len(series.values)]
    return len(first) > 1 and not any(first)


def _explain_zero(incident: Incident) -> str:
    began = _zero_since(incident)
    if began is not None:
        return f"It was not zero before step {began}"
    if _is_zero_weight(incident):
        return "These weights are zero as well, since the first look"
    return "It has been zero since the first look"


def _fix_zero(incident: Incident) -> str:
    began = _zero_since(incident)
    if began is not None:
        return (
            f"look at what changed up to step {began}: a step that was too large can leave ReLU units that are always "
            f"off (lower the learning rate{learning_rates(incident)}, or clip), and a loss term may have been switched "
            "off"
        )
    if _is_zero_weight(incident):
        return (
            "initialise these layers with random numbers (kaiming_uniform_, xavier_uniform_): behind weights that are "
            "all zero no gradient passes"
        )
    return ZERO_FIX


# TT416

def _unchanged(name: str, row: Mapping[str, float], now: TensorStreaks) -> Iterator[Breach]:
    if now.unchanged.is_active and WEIGHT_NORM in row:
        weight = row[WEIGHT_NORM]
        yield Breach(
            code="TT416", type="weight_unchanged", quantity=series_of(WEIGHT_NORM, name), subject=name, value=weight,
            limit=0.0,
            text=f"the norm of {name} stays at {short(weight)} although the norm of its gradient is "
                 f"{short(_gradient_norm(row))}",
        )


def _is_same(weight: float, last_weight: float | None, limits: TensorLimits) -> bool:
    if last_weight is None:
        return False
    return abs(float32(weight) - float32(last_weight)) <= limits.unchanged_rtol * abs(weight)


def float32(value: float) -> float:
    """The value as a recording stores it, so that a live run and its recording agree on which values are equal."""
    return array.array("f", (value,))[0]


def _gradient_norm(row: Mapping[str, float]) -> float:
    """The norm of the gradient, or the last one before it: downsampled series do not have the same steps."""
    return row.get(GRAD_NORM, row.get(LAST_NORM, 0.0))


def _may_stay_unchanged(norms: Sequence[float], limits: TensorLimits) -> bool:
    if len(norms) <= limits.unchanged_patience:
        return False
    return limits.unchanged_rtol > 0.0 or len(norms) - len(set(norms)) >= limits.unchanged_patience


# TT417, TT418, TT419

def _fractions(
    name: str, row: Mapping[str, float], now: TensorStreaks, limits: TensorLimits,
) -> Iterator[Breach]:
    for code, type, quantity, streak, most, kind in (
        ("TT417", "gradient_mostly_zero", GRAD_ZERO_FRACTION, now.mostly_zero, limits.zero_fraction_max, "zero"),
        ("TT418", "gradient_large", GRAD_LARGE_FRACTION, now.large, limits.large_fraction_max, "large"),
        ("TT419", "gradient_underflow", GRAD_SMALL_FRACTION, now.small, limits.small_fraction_max,
         "nearly lost in float16"),
    ):
        if streak.is_active and quantity in row:
            yield Breach(
                code=code, type=type, quantity=series_of(quantity, name), subject=name, value=row[quantity], limit=most,
                text=f"{row[quantity]:.1%} of the gradient of {name} is {kind}",
            )


def _with_effect(breaches: Sequence[Breach], process: Process) -> list[Breach]:
    """The breaches of tensors other than a bias without effect."""
    norms = {}
    for breach in breaches:
        for name in (breach.subject, weight_of(breach.subject)):
            if name not in norms:
                norms[name] = _usual_norm(process, name)
    return [
        breach for breach in breaches if not is_bias_without_effect(breach.subject, norms[breach.subject], norms)
    ]


def _still_zero(breaches: Sequence[Breach], process: Process) -> list[Breach]:
    """The breaches with an effect, without those of tensors that have a gradient in the end: a loss term may be
    switched on later.
    """
    recovered = set()
    for breach in breaches:
        series = process.series.get(breach.quantity)
        last = series.values[-NUM_AT_END:] if series is not None else ()
        if len(last) == NUM_AT_END and all(last):
            recovered.add(breach.subject)
    return [breach for breach in _with_effect(breaches, process) if breach.subject not in recovered]


def _trained_with_effect(breaches: Sequence[Breach], process: Process) -> list[Breach]:
    return _with_effect(with_rate(breaches, process), process)


def _usual_norm(process: Process, name: str) -> float:
    series = process.series.get(series_of(GRAD_NORM, name))
    values = [value for value in series.values if math.isfinite(value)] if series is not None else []
    return median(values) if values else 0.0


RULES = (
    LearningRule(
        code="TT406", names_tensors=True, select=_still_zero, fix=fix_unless_clipped(_fix_zero),
        explanation=_explain_zero,
    ),
    LearningRule(
        code="TT416", names_tensors=True, select=_trained_with_effect,
        fix="check that the optimizer has this tensor (it lacks modules that were built after it) and that its "
            "learning rate is not 0; weights in 16 bits may lose small updates: keep float32 copies",
    ),
    LearningRule(
        code="TT417", names_tensors=True,
        fix="check for units that are always off (ReLU); if the inputs are sparse by nature, as in an embedding, "
            "nothing is wrong",
    ),
    LearningRule(
        code="TT418", min_observations=3, min_share=0.01,
        fix="clip gradients or lower the loss weight, and check whether inputs and targets are normalised",
    ),
    LearningRule(code="TT419", fix="scale the loss with torch.amp.GradScaler, or use bfloat16"),
)
