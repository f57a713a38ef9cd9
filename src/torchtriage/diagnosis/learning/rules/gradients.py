"""TT404, TT405, TT407, TT410, TT411, TT413: the size of gradients, in total or side by side."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.learning.memory import Memory, median, spread
from torchtriage.diagnosis.learning.rule import (
    Breach,
    Incident,
    LearningRule,
    WindowLimits,
    batch_to_check,
    learning_rates,
    limit,
    loss_at_first_breach,
    loss_fell_again,
    loss_fell_in,
    short,
)
from torchtriage.diagnosis.learning.rules import divergence
from torchtriage.diagnosis.learning.rules.non_finite import gradient_norm_value
from torchtriage.findings.model import Severity
from torchtriage.recording.recording import Series
from torchtriage.recording.series import (
    GRAD_HEALTH,
    GRAD_HEALTH_DRIFT,
    GRAD_NORM,
    GRAD_NORM_AFTER_CLIP,
    GRAD_NORM_DRIFT,
    LOSS,
    series_of,
)

QUANTITIES = frozenset({GRAD_NORM, GRAD_NORM_AFTER_CLIP, GRAD_HEALTH, GRAD_NORM_DRIFT, GRAD_HEALTH_DRIFT})

ROUNDING_SHARE = 1e-4   # of the gradient of the weight; a convolution before BatchNorm has about 1e-7 in float32
NUM_START = 5           # losses whose median is the level at a place
CONVERGED_SHARE = 1e-3  # of the first loss
MIN_NORM = 1e-30        # below every norm that has a meaning; keeps a logarithm finite
MAX_LOG = 700.0         # exp() of more overflows a float
MIN_REDUCTION = 0.999   # a norm after clipping above this share of the norm before differs by rounding only
# These optimizers divide each gradient by its own size, so that tensors with unequal gradients learn alike.
ADAPTIVE = frozenset({
    "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
})


@dataclass(frozen=True, kw_only=True)
class GradientLimits(WindowLimits):
    # TT404. Norms are heavy-tailed, so the spread is that of their logarithm: with a spread of 0.5, common in RL, six
    # spreads are a factor of 20. Ten times the median is the least that counts, however small the spread.
    grad_norm_factor: float = 10.0
    grad_norm_sigmas: float = 6.0
    grad_norm_clear: float = 0.5            # an explosion ends below half of the limit
    # No absolute bound fits every model; set it if you know the scale of yours. At 1e12 float32 is close to its
    # end (the square of 1.8e19 overflows), and a step of 1e-6 times that gradient replaces any weight.
    grad_norm_max: float = 1e12

    # TT405. A tensor norm below 1e-7, as in SageMaker's VanishingGradient. The rule requires a share of the tensors,
    # because some vanish by nature: the gradient of an attention's key bias is zero up to rounding, and that is one of
    # about sixteen tensors of a block.
    vanishing_norm: float = limit(1e-7, sagemaker=1e-7)
    vanishing_share: float = limit(0.1, sagemaker=0.0)
    vanishing_patience: int = limit(5, sagemaker=1)

    # TT407: the largest tensor norm over the smallest; a rule of thumb.
    norm_ratio_max: float = 1000.0
    norm_ratio_patience: int = 5

    # TT410, TT411: a change by half, relative to an average over about a hundred observations.
    drift_max: float = 0.5
    drift_momentum: float = 0.99
    # About five observations: if the norms have a spread of 0.3, a drift of 0.5 is five deviations of such an average.
    drift_short_momentum: float = 0.8
    drift_most: float = 3.0                 # a single value counts as at most 3 averages, so a spike is not a drift
    drift_floor: float = 1e-8               # keeps the drift finite if the average is near zero

    # TT413
    clipped_share: float = 0.9
    clipped_window: int = limit(100, at_least=2)
    clipped_count: int = 50


def breaches(row: Mapping[str, float], is_policy: bool, memory: Memory, limits: GradientLimits) -> Iterator[Breach]:
    """The rules of the total gradient for one observation, and TT402."""
    norm = row.get(GRAD_NORM)
    if norm is not None:
        yield from gradient_norm_value(norm)
        if math.isfinite(norm):
            yield from _explosion(norm, memory, limits)
    yield from _drift(row, is_policy, memory, limits)
    yield from _clipping(norm, row.get(GRAD_NORM_AFTER_CLIP), memory, limits)


def side_by_side(norms: Mapping[str, float], memory: Memory, limits: GradientLimits) -> Iterator[Breach]:
    """The rules that compare the gradient norms of all tensors of one observation."""
    yield from _vanishing(norms, memory, limits)
    yield from _imbalance(norms, memory, limits)


def may_breach_side_by_side(norms: Collection[Series], limits: GradientLimits) -> bool:
    """A quick test of recorded norms by the extremes of all series; it is False for most trainings."""
    least = min((min(_finite(series.values), default=math.inf) for series in norms), default=math.inf)
    if least < limits.vanishing_norm:
        return True
    most = max(max(_finite(series.values), default=0.0) for series in norms)
    return most > limits.norm_ratio_max * least


def _finite(values: Sequence[float]) -> Sequence[float]:
    return values if math.isfinite(sum(values)) else [value for value in values if math.isfinite(value)]


# TT404

def _explosion(norm: float, memory: Memory, limits: GradientLimits) -> Iterator[Breach]:
    log_norms = memory.window("log_grad_norm", limits.window)
    most, comparison = limits.grad_norm_max, ""
    if len(log_norms) >= limits.warmup:
        middle, sigma = spread(log_norms)
        above = middle + max(math.log(limits.grad_norm_factor), limits.grad_norm_sigmas * sigma)
        most = min(most, math.exp(min(above, MAX_LOG)))
        usual = math.exp(middle)
        comparison = f", {short(norm / max(usual, MIN_NORM))}x the previous median of {short(usual)}"
    end = limits.grad_norm_clear * most
    if memory.streak("explosion", norm > most, 1, cleared=norm < end).is_active:
        yield Breach(
            code="TT404", type="gradient_explosion", quantity=GRAD_NORM, value=norm, limit=most if norm > most else end,
            text=f"gradient norm {short(norm)}{comparison}",
        )
    log_norms.append(math.log(max(norm, MIN_NORM)))


def _norm_after_clipping(incident: Incident) -> float | None:
    """The norm that clipping left of the worst gradient; None if it was not clipped."""
    norm = incident.at(GRAD_NORM_AFTER_CLIP, incident.worst.step)
    return norm if norm is not None and norm < incident.worst.value else None


def _explosion_severity(incident: Incident) -> Severity | None:
    is_harmless = _norm_after_clipping(incident) is not None or loss_fell_again(incident)
    return Severity.P3 if is_harmless else None


def _growth_to_overflow(incident: Incident) -> divergence.Growth | None:
    """The growth of the loss that ended in an overflow, if the gradient exploded during it."""
    growth = divergence.growth_before_overflow(incident.others)
    is_during = growth is not None and incident.steps and incident.steps[0] <= growth.last_step
    return growth if is_during else None


def _explain_explosion(incident: Incident) -> str:
    growth = _growth_to_overflow(incident)
    if growth is not None:
        return divergence.explanation(growth)
    parts = [loss_at_first_breach(incident)]
    if loss_fell_again(incident):
        parts.append("The loss fell again afterwards, as it does where the data become harder")
    return ". ".join(part for part in parts if part)


def _fix_explosion(incident: Incident) -> str:
    if _growth_to_overflow(incident) is not None:
        return divergence.fix(incident)
    batch, rates = batch_to_check(incident), learning_rates(incident)
    norms = incident.before(GRAD_NORM)
    if not norms:
        return f"{batch}; clip with torch.nn.utils.clip_grad_norm_, or lower the learning rate{rates}"
    middle = median(norms)
    clipped = _norm_after_clipping(incident)
    if clipped is not None:
        return f"{batch}; clipping reduced it to {short(clipped)}; the previous median is {short(middle)}"
    return (
        f"{batch}; clip at about {short(2 * middle)}, twice the previous median of {short(middle)}: "
        f"torch.nn.utils.clip_grad_norm_(parameters, {short(2 * middle)}); or lower the learning rate{rates}"
    )


# TT405

def _vanishing(norms: Mapping[str, float], memory: Memory, limits: GradientLimits) -> Iterator[Breach]:
    """A gradient that is exactly zero does not count: that is TT406. Nor does that of a bias without effect."""
    small = {name: norm for name, norm in norms.items() if 0.0 < norm < limits.vanishing_norm}
    small = {name: norm for name, norm in small.items() if not is_bias_without_effect(name, norm, norms)}
    share = len(small) / len(norms) if norms else 0.0
    beyond = share > 0.0 and share >= limits.vanishing_share
    if memory.streak("vanishing", beyond, limits.vanishing_patience).is_active:
        least = min(small or norms, key=norms.__getitem__)
        yield Breach(
            code="TT405", type="gradient_vanishing", quantity=series_of(GRAD_NORM, least), subject="tensors",
            value=norms[least], limit=limits.vanishing_norm,
            text=f"{share:.0%} of {len(norms)} gradients have nearly vanished; the norm of {least} is "
                 f"{short(norms[least])}",
        )


def _is_still_learning(incident: Incident) -> bool:
    """A converged training has small gradients everywhere."""
    series = incident.process.series.get(LOSS)
    first = [value for value in (series.values[:NUM_START] if series is not None else ()) if math.isfinite(value)]
    before = incident.before(LOSS)[-NUM_START:]
    return not (first and before) or median(before) > CONVERGED_SHARE * median(first)


def is_bias_without_effect(name: str, norm: float, norms: Mapping[str, float]) -> bool:
    """Whether a bias has no gradient beside rounding while the weight of the same layer has one.

    Algebra makes it so: a normalisation layer subtracts the bias before it, softmax that of the keys, and the two
    terms of a critic's loss cancel that of its last layer.
    """
    if name.partition(" (")[0].rpartition(".")[2] != "bias":
        return False
    return norm < ROUNDING_SHARE * norms.get(weight_of(name), 0.0)


def weight_of(name: str) -> str:
    """The weight of the layer of a tensor; the name may end with that of its optimizer, as in `0.bias (Adam 2)`."""
    path, bracket, optimizer = name.partition(" (")
    layer = path.rpartition(".")[0]
    return (f"{layer}.weight" if layer else "weight") + bracket + optimizer


# TT407

def _imbalance(norms: Mapping[str, float], memory: Memory, limits: GradientLimits) -> Iterator[Breach]:
    """Norms that vanish, are zero or are not finite belong to other rules."""
    alive = {
        name: norm for name, norm in norms.items()
        if limits.vanishing_norm <= norm < math.inf and not is_bias_without_effect(name, norm, norms)
    }
    ratio = max(alive.values()) / min(alive.values()) if alive else 1.0
    if memory.streak("norm_ratio", ratio > limits.norm_ratio_max, limits.norm_ratio_patience).is_active:
        most, least = max(alive, key=alive.__getitem__), min(alive, key=alive.__getitem__)
        yield Breach(
            code="TT407", type="gradient_ratio", quantity=series_of(GRAD_NORM, most), subject="tensors", value=ratio,
            limit=limits.norm_ratio_max,
            text=f"the gradient of {most} ({short(norms[most])}) is {short(ratio)}x that of {least} "
                 f"({short(norms[least])})",
        )


def _is_not_adaptive(incident: Incident) -> bool:
    optimizers = incident.process.learning.optimizers
    return not optimizers or not ADAPTIVE.issuperset(optimizers)


# TT410, TT411

def drift(value: float, average: float, floor: float) -> float:
    """The relative distance of a value from its moving average before the average includes it."""
    return abs(value - average) / max(abs(average), floor)


def _drift(row: Mapping[str, float], is_policy: bool, memory: Memory, limits: GradientLimits) -> Iterator[Breach]:
    """The drift that the row gives, else that of a short moving average from a long one: a single value is too noisy.

    The gradient norm of a policy is expected to move with its data, so only a drift that the row gives is checked.
    """
    norm_drift, health_drift = row.get(GRAD_NORM_DRIFT), row.get(GRAD_HEALTH_DRIFT)
    if norm_drift is None and not is_policy:
        norm_drift = _own_drift(GRAD_NORM, row.get(GRAD_NORM), memory, limits)
    if health_drift is None:
        health_drift = _own_drift(GRAD_HEALTH, row.get(GRAD_HEALTH), memory, limits)
    for code, name, quantity, value in (
        ("TT410", "norm", GRAD_NORM, norm_drift), ("TT411", "health", GRAD_HEALTH, health_drift),
    ):
        if value is not None and value > limits.drift_max:
            yield Breach(
                code=code, type=f"gradient_{name}_drift", quantity=quantity, value=value, limit=limits.drift_max,
                text=f"the gradient {name} differs from its moving average by {short(value)} times the average",
            )


def _is_growth_without_gain(incident: Incident) -> bool:
    """Gradients shrink while a training converges, and may grow while its loss falls: only the rest is a problem."""
    during = [incident.at(GRAD_NORM, step) for step in incident.steps]
    norms, before = [norm for norm in during if norm is not None], incident.before(GRAD_NORM)
    if norms and before and median(norms) < median(before):
        return False
    return not loss_fell_in(incident)


def _own_drift(name: str, value: float | None, memory: Memory, limits: GradientLimits) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    long_average = memory.numbers.get(f"long:{name}", value)
    value = min(value, limits.drift_most * max(long_average, limits.drift_floor))
    count = memory.count(f"num:{name}")
    short_average = _update_average(memory, f"short:{name}", value, count, limits.drift_short_momentum)
    _update_average(memory, f"long:{name}", value, count, limits.drift_momentum)
    return drift(short_average, long_average, limits.drift_floor) if count > limits.warmup else None


def _update_average(memory: Memory, key: str, value: float, count: int, momentum: float) -> float:
    """Starts as the mean of all values: an average that stays near its first value would itself look like a drift."""
    momentum = min(momentum, (count - 1) / count)
    average = momentum * memory.numbers.get(key, value) + (1.0 - momentum) * value
    memory.numbers[key] = average
    return average


# TT413

def _clipping(
    before: float | None, after: float | None, memory: Memory, limits: GradientLimits,
) -> Iterator[Breach]:
    if before is None or after is None or not (math.isfinite(before) and math.isfinite(after)):
        return
    share, count = memory.share("clipped", after < MIN_REDUCTION * before, limits.clipped_window)
    if count >= limits.clipped_count and share >= limits.clipped_share:
        yield Breach(
            code="TT413", type="gradient_always_clipped", quantity=GRAD_NORM, value=share, limit=limits.clipped_share,
            text=f"gradients were clipped in {share:.0%} of the last {count} observations, most recently from "
                 f"{short(before)} to {short(after)}",
        )


def _fix_clipping(incident: Incident) -> str:
    norms = incident.before(GRAD_NORM)
    usual = f" (the median before clipping is {short(median(norms))})" if norms else ""
    return (
        f"raise max_norm to the usual norm{usual}; or keep it: the gradient then only gives a direction, and the "
        f"learning rate{learning_rates(incident)} the length of a step"
    )


RULES = (
    LearningRule(
        code="TT404", fix=_fix_explosion, explanation=_explain_explosion, severity=_explosion_severity,
    ),
    LearningRule(
        code="TT405", is_problem=_is_still_learning,
        fix="shorten the path to these layers: residual connections, normalisation, an initialisation by fan-in "
            "(kaiming_, xavier_), or ReLU instead of sigmoid and tanh; in 16 bits, scale the loss",
    ),
    LearningRule(
        code="TT407", is_problem=_is_not_adaptive,
        fix="give the two layers separate learning rates, or normalise between them; an adaptive optimizer (Adam) "
            "compensates for it",
    ),
    LearningRule(
        code="TT410", min_observations=10, min_share=0.1, is_problem=_is_growth_without_gain,
        fix="check whether the learning rate, the data or the loss terms changed at the first of these steps; if that "
            "is intended, nothing needs to change",
    ),
    LearningRule(
        code="TT411", min_observations=10, min_share=0.1,
        fix="inspect the layers whose gradients vanish or explode from the first of these steps on (TT404 and TT405 "
            "name them)",
    ),
    LearningRule(code="TT413", fix=_fix_clipping),
)
