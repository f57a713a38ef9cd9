"""The learning rules as pure functions: numbers of one observation, and what is remembered of those before, to breaches of a limit."""

import math
from collections.abc import Collection, Iterator, Sequence

from torchtriage.diagnosis.learning.limits import LearningLimits
from torchtriage.diagnosis.learning.memory import spread
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.recording.series import GRAD_HEALTH, GRAD_NORM, LOSS, WEIGHT_NORM

TINY = 1e-30        # below every norm that means something; keeps a logarithm finite


# Gradients, weights, numerics

def loss_value(loss: float, quantity: str = LOSS) -> Iterator[Breach]:
    if not math.isfinite(loss):
        yield Breach(
            code="TT401", type="numerical_instability", quantity=quantity, value=loss, limit=math.inf,
            text=f"{'the loss' if quantity == LOSS else quantity} is {short(loss)}",
        )


def loss_spike(loss: float, before: Sequence[float], start: float, limits: LearningLimits) -> Iterator[Breach]:
    """`start`: what the loss began with; `before`: the last ones."""
    if not math.isfinite(loss) or len(before) < limits.warmup:
        return
    middle, sigma = spread(before)
    limit = max(middle + max(limits.loss_spike_sigmas * sigma, (limits.loss_spike_factor - 1.0) * abs(middle)),
                limits.loss_spike_floor * abs(start))
    if loss > limit:
        yield Breach(
            code="TT414", type="loss_spike", quantity=LOSS, value=loss, limit=limit,
            text=f"the loss jumped to {short(loss)}; the median of the {len(before)} before it is {short(middle)}",
        )


def loss_stuck(best: float, start: float, sigma: float, num_observed: int, limits: LearningLimits) -> Iterator[Breach]:
    """`best`: the lowest median of a block so far. Half a spread is what the start may be off by chance."""
    limit = start - max(limits.loss_min_gain * abs(start), 0.5 * sigma)
    if best > limit:
        yield Breach(
            code="TT415", type="loss_not_decreasing", quantity=LOSS, value=best, limit=limit,
            text=f"the loss has not come down in {num_observed} observations: it began at {short(start)}, its best level is {short(best)}",
        )


def gradient_norm_value(norm: float) -> Iterator[Breach]:
    if not math.isfinite(norm):
        yield Breach(
            code="TT402", type="numerical_instability", quantity=GRAD_NORM, value=norm, limit=math.inf,
            text=f"the gradient norm is {short(norm)}",
        )


def gradient_norm_limit(log_norms: Sequence[float], limits: LearningLimits) -> tuple[float, float | None]:
    """(the norm from which on it explodes, the median of those before or None if there are too few)."""
    if len(log_norms) < limits.warmup:
        return limits.grad_norm_max, None
    middle, sigma = spread(log_norms)
    above = middle + max(math.log(limits.grad_norm_factor), limits.grad_norm_sigmas * sigma)
    return min(limits.grad_norm_max, math.exp(min(above, 700.0))), math.exp(middle)


def gradient_explosion(norm: float, limit: float, middle: float | None) -> Breach:
    than = "" if middle is None else f", {short(norm / max(middle, TINY))}x the median {short(middle)} of those before"
    return Breach(
        code="TT404", type="gradient_explosion", quantity=GRAD_NORM, value=norm, limit=limit, text=f"gradient norm {short(norm)}{than}",
    )


def vanishing_share(norms: Collection[float], limits: LearningLimits) -> float:
    """The share of tensors whose gradient is almost, and not exactly, zero."""
    return sum(0.0 < norm < limits.vanishing_norm for norm in norms) / len(norms) if norms else 0.0


def drift(value: float, average: float, floor: float) -> float:
    """How far a value is from its moving average, before the average takes it in."""
    return abs(value - average) / max(abs(average), floor)


def gradient_drift(norm_drift: float | None, health_drift: float | None, limits: LearningLimits) -> Iterator[Breach]:
    for code, name, quantity, value in (
        ("TT410", "norm", GRAD_NORM, norm_drift), ("TT411", "health", GRAD_HEALTH, health_drift),
    ):
        if value is not None and value > limits.drift_max:
            yield Breach(
                code=code, type=f"gradient_{name}_drift", quantity=quantity, value=value, limit=limits.drift_max,
                text=f"gradient {name} has drifted from its moving average by {short(value)} of it",
            )


STABILITY = {LOSS: ("TT401", LOSS), "gradients": ("TT402", GRAD_NORM), "weights": ("TT403", WEIGHT_NORM)}


def stability(has_nan: bool, has_inf: bool, where: str, step: int | None = None) -> Iterator[Breach]:
    """`where` is one of STABILITY."""
    if where not in STABILITY:
        raise ValueError(f"where must be one of {', '.join(STABILITY)}, got {where!r}")
    code, quantity = STABILITY[where]
    if has_nan or has_inf:
        value = math.nan if has_nan else math.inf
        yield Breach(
            code=code, type="numerical_instability", quantity=quantity, value=value, limit=math.inf, step=step,
            text=f"{short(value)} in the {where}",
        )
