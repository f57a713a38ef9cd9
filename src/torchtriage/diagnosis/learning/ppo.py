"""Recurrent state and PPO: the numbers of one update to breaches of a limit; pure functions."""

import math
from collections.abc import Iterator

from torchtriage.diagnosis.learning.checks import loss_value
from torchtriage.diagnosis.learning.limits import LearningLimits
from torchtriage.diagnosis.learning.memory import Streak
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.recording.series import (
    LSTM_PREFIX,
    PPO_ADVANTAGE_STD,
    PPO_BELLMAN_ERROR,
    PPO_ENTROPY,
    PPO_FIRST_RATIO_DEVIATION,
    PPO_KL,
    PPO_PREFIX,
    PPO_RATIO_MAX,
    PPO_RATIO_MIN,
    PPO_VALUE_LOSS,
)

# Recurrent state

def recurrent_finite(has_nan: bool, has_inf: bool) -> Iterator[Breach]:
    for value, is_there in ((math.nan, has_nan), (math.inf, has_inf)):
        if is_there:
            yield _not_finite(value, f"{LSTM_PREFIX}has_{short(value).lower()}", "", "the recurrent state holds")


def recurrent_range(state: str, rms: float | None, rms_max: float | None, limits: LearningLimits) -> Iterator[Breach]:
    """`state` is h or c; `rms` is over all environments, `rms_max` that of the worst one."""
    known = {f"{LSTM_PREFIX}{state}_rms": rms, f"{LSTM_PREFIX}{state}_rms_max": rms_max}
    given = {quantity: value for quantity, value in known.items() if value is not None}
    if not given:
        return
    name = "hidden state" if state == "h" else "cell state"
    bad = next(((quantity, value) for quantity, value in given.items() if not math.isfinite(value)), None)
    if bad is not None:
        yield _not_finite(bad[1], bad[0], state, f"the RMS of the {name} is")
        return
    (whole_name, whole), (worst_name, worst) = next(iter(given.items())), list(given.items())[-1]
    if worst > limits.rms_max:
        yield Breach(
            code="TT502", type=f"lstm_{state}_explosion", quantity=worst_name, subject=state, value=worst, limit=limits.rms_max,
            text=f"RMS {short(worst)} of the {name} in the worst environment",
        )
    elif whole < limits.rms_min:
        yield Breach(
            code="TT503", type=f"lstm_{state}_vanishing", quantity=whole_name, subject=state, value=whole, limit=limits.rms_min,
            text=f"RMS {short(whole)} of the {name}",
        )
    elif state == "h" and rms is not None and limits.rms_saturated <= rms <= 1.000001:
        yield Breach(
            code="TT504", type="lstm_h_saturation", quantity=whole_name, subject=state, value=rms, limit=limits.rms_saturated,
            text=f"RMS {short(rms)} of the hidden state, which tanh bounds by 1",
        )


def _not_finite(value: float, quantity: str, state: str, begin: str) -> Breach:
    word = "nan" if math.isnan(value) else "inf"
    return Breach(
        code="TT501", type=f"lstm_{word}", quantity=quantity, subject=state, value=value, limit=math.inf, text=f"{begin} {short(value)}",
    )


# PPO

def policy_finite(quantity: str, value: float, type: str = "numerical_instability") -> Iterator[Breach]:
    if not math.isfinite(value):
        yield Breach(
            code="TT601", type=type, quantity=quantity, value=value, limit=math.inf,
            text=f"{quantity.removeprefix(PPO_PREFIX)} is {short(value)}",
        )


def ratios(most: float | None, least: float | None, limits: LearningLimits) -> Iterator[Breach]:
    """Of the probability ratios of an update the largest and the smallest; where one is not finite the other says nothing."""
    for quantity, value in ((PPO_RATIO_MAX, most), (PPO_RATIO_MIN, least)):
        if value is not None and not math.isfinite(value):
            yield from policy_finite(quantity, value, "ratio_nan_inf")
            return
    if most is not None and most > limits.ratio_max:
        yield Breach(
            code="TT602", type="ratio_explosion", quantity=PPO_RATIO_MAX, value=most, limit=limits.ratio_max,
            text=f"probability ratio up to {short(most)}",
        )
    if least is not None and least < limits.ratio_min:
        yield Breach(
            code="TT603", type="ratio_collapse", quantity=PPO_RATIO_MIN, value=least, limit=limits.ratio_min,
            text=f"probability ratio down to {short(least)}",
        )


def first_ratio(deviation: float, is_half: bool, limits: LearningLimits) -> Iterator[Breach]:
    """`deviation`: the largest |ratio - 1| of the first minibatch, before anything was updated."""
    limit = limits.first_ratio_max_half if is_half else limits.first_ratio_max
    if not math.isfinite(deviation):
        yield from policy_finite(PPO_FIRST_RATIO_DEVIATION, deviation, "ratio_nan_inf")
    elif deviation > limit:
        yield Breach(
            code="TT604", type="first_ratio_not_one", quantity=PPO_FIRST_RATIO_DEVIATION, value=deviation, limit=limit,
            text=f"before any update the ratio was off from 1 by {short(deviation)}",
        )


def value_function(
    value_loss: float | None, bellman_error: float | None, explained_variance: float | None, returns_std: float | None,
    limits: LearningLimits,
) -> Iterator[Breach]:
    """The limits are for returns of about unit variance: `returns_std` gives the scale where they are not."""
    explained = explained_variance if explained_variance is not None and math.isfinite(explained_variance) else None
    scale = returns_std if returns_std is not None and 0.0 < returns_std < math.inf else 1.0
    for quantity, value, limit in (
        (PPO_VALUE_LOSS, value_loss, limits.value_loss_max * scale * scale),
        (PPO_BELLMAN_ERROR, bellman_error, limits.bellman_error_max * scale),
    ):
        if value is None:
            continue
        yield from loss_value(value, quantity)
        if limit < value < math.inf and (explained is None or explained < limits.explained_variance_healthy):
            name = quantity.removeprefix(PPO_PREFIX).replace("_", " ")
            seen = "" if explained is None else f", explained variance {short(explained)}"
            text = f"{name} {short(value)}{seen}"
            yield Breach(code="TT605", type="value_collapse", quantity=quantity, value=value, limit=limit, text=text)


def phase(progress: float, limits: LearningLimits) -> tuple[str, float]:
    """The phase of a training, and the explained variance that may be expected in it."""
    for name, until, least in (
        ("warm-up", limits.warmup_until, limits.explained_variance_warmup), ("early", limits.early_until, limits.explained_variance_early),
        ("mid", limits.mid_until, limits.explained_variance_mid),
    ):
        if progress < until:
            return name, least
    return "late", limits.explained_variance_late


def entropy(quantity: str, value: float, collapse: Streak, low: Streak, limits: LearningLimits) -> Iterator[Breach]:
    """`collapse`, `low`: the streaks of this head below the two limits; the lower one speaks for both."""
    rows = (("TT606", "entropy_collapse", collapse, limits.entropy_collapse), ("TT607", "entropy_low", low, limits.entropy_low))
    for code, type, streak, limit in rows:
        if streak.is_active:
            head = quantity.removeprefix(PPO_ENTROPY).removeprefix("/")
            of = f" of {head}" if head else ""
            yield Breach(
                code=code, type=type, quantity=quantity, value=value, limit=limit, text=f"normalised entropy{of} {short(value)}",
            )
            return


def kl(value: float, limits: LearningLimits) -> Iterator[Breach]:
    yield from policy_finite(PPO_KL, value)
    for code, type, limit in (("TT608", "kl_extreme", limits.kl_extreme), ("TT609", "kl_spike", limits.kl_spike)):
        if math.isfinite(value) and value > limit:
            yield Breach(
                code=code, type=type, quantity=PPO_KL, value=value, limit=limit, text=f"KL divergence {short(value)} in one update",
            )
            return


def advantages(std: float, limits: LearningLimits) -> Iterator[Breach]:
    yield from policy_finite(PPO_ADVANTAGE_STD, std)
    if math.isfinite(std) and std < limits.advantage_std_min:
        yield Breach(
            code="TT611", type="advantages_flat", quantity=PPO_ADVANTAGE_STD, value=std, limit=limits.advantage_std_min,
            text=f"standard deviation {short(std)} of the advantages",
        )
