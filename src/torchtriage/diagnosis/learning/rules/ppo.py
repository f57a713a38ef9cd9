"""TT601 to TT614: the updates of PPO."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from torchtriage.diagnosis.learning.memory import Memory
from torchtriage.diagnosis.learning.rule import Breach, Incident, LearningRule, limit, short
from torchtriage.diagnosis.learning.rules.non_finite import loss_value
from torchtriage.diagnosis.learning.rules.value_clipping import fix_unless_clipped
from torchtriage.findings.model import Severity
from torchtriage.recording.recording import Process
from torchtriage.recording.series import (
    EPISODE_RETURN_MEAN,
    PPO_ADVANTAGE_STD,
    PPO_BELLMAN_ERROR,
    PPO_CLIP_FRACTION,
    PPO_EARLY_STOPPED,
    PPO_ENTROPY,
    PPO_EXPLAINED_VARIANCE,
    PPO_FIRST_RATIO_DEVIATION,
    PPO_KL,
    PPO_PREFIX,
    PPO_RATIO_MAX,
    PPO_RATIO_MIN,
    PPO_RETURNS_MEAN,
    PPO_RETURNS_STD,
    PPO_UPDATES_SKIPPED_TOTAL,
    PPO_VALUE_LOSS,
)

ENTROPY_OF = f"{PPO_ENTROPY}/"      # of a head of the policy: `ppo/entropy/op`
QUANTITIES = frozenset({
    PPO_RATIO_MAX, PPO_RATIO_MIN, PPO_FIRST_RATIO_DEVIATION, PPO_KL, PPO_ENTROPY, PPO_VALUE_LOSS, PPO_BELLMAN_ERROR,
    PPO_EXPLAINED_VARIANCE, PPO_RETURNS_MEAN, PPO_RETURNS_STD, PPO_CLIP_FRACTION, PPO_ADVANTAGE_STD,
    PPO_EARLY_STOPPED, PPO_UPDATES_SKIPPED_TOTAL, EPISODE_RETURN_MEAN,
})
PREFIXES = (ENTROPY_OF,)

COLLAPSE_PATIENCE = 3       # TT605: observations in a row; a single bad rollout gives one
MAX_ENTROPY = 1.001         # the normalised entropy of a uniform policy may round to a little above 1
RETURN_RTOL = 1e-6          # TT614: mean returns this close are equal


@dataclass(frozen=True, kw_only=True)
class PPOLimits:
    # TT602, TT603: rules of thumb, far outside the clip range of 0.8 to 1.2.
    ratio_max: float = 5.0
    ratio_min: float = 0.1
    # TT604. Before the first update only rounding may differ: float32 log-probabilities agree to about 1e-5, those of
    # 16 bits to about 1e-2.
    first_ratio_max: float = 1e-3
    first_ratio_max_half: float = 5e-2

    # TT605. Calibrated on 400 updates with normalised returns: a healthy value loss is up to 3.0 (p99 1.01), a healthy
    # Bellman error up to 3.44. A critic that explains half of the variance has not collapsed, whatever the scale of its
    # loss.
    value_loss_max: float = 5.0
    bellman_error_max: float = 5.0
    explained_variance_healthy: float = 0.5
    # A critic that still predicts 0 has a loss of mean squared plus variance: in the first updates of a CartPole that
    # is 5 to 6 times the variance. It needs no help unless its returns are too large to be learned in usual steps.
    returns_large: float = 1000.0
    # Explained variance alone gave false alarms; relative to the phase of the training it is a diagnostic.
    warmup_until: float = 0.10
    early_until: float = 0.25
    mid_until: float = 0.75
    explained_variance_warmup: float = -0.5
    explained_variance_early: float = -0.2
    explained_variance_mid: float = 0.0
    explained_variance_late: float = 0.1

    # TT606, TT607: normalised entropy, 1 is uniform.
    entropy_collapse: float = 0.1
    entropy_low: float = 0.3
    entropy_patience: int = 3
    entropy_clear: float = 1.5              # times the limit

    kl_extreme: float = 0.5                 # TT608
    kl_spike: float = 0.1                   # TT609: seven times the usual target of 0.015

    # TT610: if every update stops early, the planned epochs are never run.
    early_stop_share: float = 0.9
    early_stop_window: int = limit(20, at_least=2)

    advantage_std_min: float = 1e-6         # TT611: division by less amplifies rounding errors to a signal
    clip_fraction_max: float = 0.5          # TT612: half of the samples give the policy no gradient
    clip_fraction_patience: int = 3
    flat_returns_patience: int = 20         # TT614: observations from the first on with the same mean return
    skipped_updates_dead: int = 3           # TT613: in a row; the trainer stops there


def breaches(row: Mapping[str, float], is_half: bool, memory: Memory, limits: PPOLimits) -> Iterator[Breach]:
    """The rules of PPO for one observation, and TT401 for its value losses."""
    yield from _ratios(row.get(PPO_RATIO_MAX), row.get(PPO_RATIO_MIN), limits)
    yield from _value_function(row, limits)
    yield from _first_ratio(row.get(PPO_FIRST_RATIO_DEVIATION), is_half, limits)
    yield from _kl(row.get(PPO_KL), limits)
    yield from _advantages(row.get(PPO_ADVANTAGE_STD), limits)
    for name, entropy in row.items():
        if name == PPO_ENTROPY or name.startswith(ENTROPY_OF):
            yield from _entropy(name, entropy, memory, limits)
    yield from _clip_fraction(row.get(PPO_CLIP_FRACTION), memory, limits)
    yield from _early_stop(row.get(PPO_EARLY_STOPPED), memory, limits)
    yield from _skipped_updates(row.get(PPO_UPDATES_SKIPPED_TOTAL), memory)
    yield from _flat_returns(row.get(EPISODE_RETURN_MEAN), memory, limits)


# TT601

def _non_finite(quantity: str, value: float, type: str = "numerical_instability") -> Breach:
    return Breach(
        code="TT601", type=type, quantity=quantity, value=value, limit=math.inf,
        text=f"{quantity.removeprefix(PPO_PREFIX)} is {short(value)}",
    )


# TT602, TT603, TT604

def _ratios(most: float | None, least: float | None, limits: PPOLimits) -> Iterator[Breach]:
    """The extremes of the probability ratios of an update. If one is not finite, the other has no meaning."""
    for quantity, value in ((PPO_RATIO_MAX, most), (PPO_RATIO_MIN, least)):
        if value is not None and not math.isfinite(value):
            yield _non_finite(quantity, value, "ratio_nan_inf")
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


def _first_ratio(deviation: float | None, is_half: bool, limits: PPOLimits) -> Iterator[Breach]:
    """`deviation`: the largest |ratio - 1| of the first minibatch, before any update."""
    if deviation is None:
        return
    most = limits.first_ratio_max_half if is_half else limits.first_ratio_max
    if not math.isfinite(deviation):
        yield _non_finite(PPO_FIRST_RATIO_DEVIATION, deviation, "ratio_nan_inf")
    elif deviation > most:
        yield Breach(
            code="TT604", type="first_ratio_not_one", quantity=PPO_FIRST_RATIO_DEVIATION, value=deviation, limit=most,
            text=f"before any update the probability ratio differs from 1 by {short(deviation)}",
        )


# TT605

def _value_function(row: Mapping[str, float], limits: PPOLimits) -> Iterator[Breach]:
    """The limits are for returns of about unit variance; the spread of the returns scales them, or their size."""
    explained = row.get(PPO_EXPLAINED_VARIANCE)
    if explained is not None and not math.isfinite(explained):
        explained = None
    scale = row.get(PPO_RETURNS_STD)
    if scale is None or not 0.0 < scale < math.inf:
        scale = 1.0
    mean = row.get(PPO_RETURNS_MEAN)
    if mean is not None and math.hypot(mean, scale) < limits.returns_large:
        scale = math.hypot(mean, scale)
    is_healthy = explained is not None and explained >= limits.explained_variance_healthy
    for quantity, most in (
        (PPO_VALUE_LOSS, limits.value_loss_max * scale * scale), (PPO_BELLMAN_ERROR, limits.bellman_error_max * scale),
    ):
        value = row.get(quantity)
        if value is None:
            continue
        yield from loss_value(value, quantity)
        if most < value < math.inf and not is_healthy:
            name = quantity.removeprefix(PPO_PREFIX).replace("_", " ")
            variance = "" if explained is None else f", explained variance {short(explained)}"
            yield Breach(
                code="TT605", type="value_collapse", quantity=quantity, value=value, limit=most,
                text=f"{name} {short(value)}{variance}",
            )


def phase(progress: float, limits: PPOLimits) -> tuple[str, float]:
    """The phase of a training, and the least explained variance to expect in it."""
    for name, until, least in (
        ("warm-up", limits.warmup_until, limits.explained_variance_warmup),
        ("early", limits.early_until, limits.explained_variance_early),
        ("mid", limits.mid_until, limits.explained_variance_mid),
    ):
        if progress < until:
            return name, least
    return "late", limits.explained_variance_late


def _lasting_collapse(breaches: Sequence[Breach], process: Process) -> list[Breach]:
    """The breaches in runs of at least COLLAPSE_PATIENCE observations.

    A run at the start of the training that ended does not count: the critic had not learned anything yet.
    """
    steps_in_breach = {breach.step for breach in breaches}
    observed = {step for step in steps_in_breach if step is not None}
    for name in {breach.quantity for breach in breaches} & process.series.keys():
        observed.update(int(step) for step in process.series[name].steps if math.isfinite(step))
    steps = sorted(observed)
    runs = [list(run) for is_beyond, run in groupby(steps, steps_in_breach.__contains__) if is_beyond]
    if runs and runs[0][0] == steps[0] and runs[0][-1] != steps[-1]:
        runs = runs[1:]
    lasting = {step for run in runs if len(run) >= COLLAPSE_PATIENCE for step in run}
    has_enough = len(breaches) >= COLLAPSE_PATIENCE
    return [breach for breach in breaches if breach.step in lasting or (breach.step is None and has_enough)]


# TT606, TT607

def _entropy(name: str, entropy: float, memory: Memory, limits: PPOLimits) -> Iterator[Breach]:
    """The more severe of the two rules that apply, with a memory per head."""
    if not math.isfinite(entropy):
        yield _non_finite(name, entropy)
    if not is_normalised(entropy):
        return
    head = name.removeprefix(PPO_ENTROPY).removeprefix("/")
    is_reported = False
    for code, type, key, least in (
        ("TT606", "entropy_collapse", "collapse", limits.entropy_collapse),
        ("TT607", "entropy_low", "low", limits.entropy_low),
    ):
        is_clear = entropy > limits.entropy_clear * least
        streak = memory.streak(f"{key}:{name}", entropy < least, limits.entropy_patience, cleared=is_clear)
        if streak.is_active and not is_reported:
            is_reported = True
            yield Breach(
                code=code, type=type, quantity=name, value=entropy, limit=least,
                text=f"normalised entropy{f' of {head}' if head else ''} {short(entropy)}",
            )


def is_normalised(entropy: float) -> bool:
    """Whether an entropy is relative to that of a uniform policy; that of a Gaussian has no bounds to compare with."""
    return 0.0 <= entropy <= MAX_ENTROPY


# TT608, TT609

def _kl(value: float | None, limits: PPOLimits) -> Iterator[Breach]:
    if value is None:
        return
    if not math.isfinite(value):
        yield _non_finite(PPO_KL, value)
        return
    for code, type, most in (("TT608", "kl_extreme", limits.kl_extreme), ("TT609", "kl_spike", limits.kl_spike)):
        if value > most:
            yield Breach(
                code=code, type=type, quantity=PPO_KL, value=value, limit=most,
                text=f"KL divergence {short(value)} in one update",
            )
            return


# TT610

def _early_stop(stopped: float | None, memory: Memory, limits: PPOLimits) -> Iterator[Breach]:
    if stopped is None:
        return
    share, count = memory.share("early_stopped", stopped > 0, limits.early_stop_window)
    if count >= limits.early_stop_window and share >= limits.early_stop_share:
        yield Breach(
            code="TT610", type="early_stop_always", quantity=PPO_EARLY_STOPPED, value=share,
            limit=limits.early_stop_share,
            text=f"the KL divergence ended {share:.0%} of the last {count} updates early",
        )


# TT611

def _advantages(std: float | None, limits: PPOLimits) -> Iterator[Breach]:
    if std is None:
        return
    if not math.isfinite(std):
        yield _non_finite(PPO_ADVANTAGE_STD, std)
    elif std < limits.advantage_std_min:
        yield Breach(
            code="TT611", type="advantages_flat", quantity=PPO_ADVANTAGE_STD, value=std,
            limit=limits.advantage_std_min, text=f"standard deviation {short(std)} of the advantages",
        )


# TT612

def _clip_fraction(share: float | None, memory: Memory, limits: PPOLimits) -> Iterator[Breach]:
    if share is None:
        return
    most = limits.clip_fraction_max
    if memory.streak("clip_fraction", share > most, limits.clip_fraction_patience).is_active:
        yield Breach(
            code="TT612", type="clip_fraction_high", quantity=PPO_CLIP_FRACTION, value=share, limit=most,
            text=f"{share:.0%} of the samples were clipped",
        )


# TT613

def _skipped_updates(total: float | None, memory: Memory) -> Iterator[Breach]:
    if total is None:
        return
    has_grown = total > memory.numbers.get("updates_skipped", 0.0)
    memory.numbers["updates_skipped"] = total
    in_a_row = memory.streak("updates_skipped", has_grown, 1).count
    if has_grown:
        noun = "update" if total == 1 else "updates"
        yield Breach(
            code="TT613", type="update_skipped", quantity=PPO_UPDATES_SKIPPED_TOTAL, value=in_a_row, limit=0.0,
            text=f"{total:.0f} {noun} skipped because the loss was not finite, {in_a_row} in a row",
        )


def _skipping_severity(incident: Incident) -> Severity | None:
    return Severity.P0 if incident.worst.value >= incident.limits.skipped_updates_dead else None


# TT614

def _flat_returns(value: float | None, memory: Memory, limits: PPOLimits) -> Iterator[Breach]:
    """Returns that have been equal since the first observation; returns that converge later are not a problem."""
    if value is None:
        return
    first = memory.numbers.setdefault("first_return", value)
    is_equal = abs(value - first) <= RETURN_RTOL * max(1.0, abs(first))
    is_flat = is_equal and not memory.numbers.get("returns_moved")
    memory.numbers["returns_moved"] = float(not is_flat)
    if memory.streak("flat_returns", is_flat, limits.flat_returns_patience).is_active:
        yield Breach(
            code="TT614", type="flat_returns", quantity=EPISODE_RETURN_MEAN, value=value, limit=first,
            text=f"every episode so far has returned {short(value)}",
        )


def _are_flat_to_the_end(incident: Incident) -> bool:
    returns, steps = incident.series, incident.steps
    if returns is not None and steps and steps[-1] < returns.steps[-1]:
        return False
    return _is_unsolved(incident)


def _is_unsolved(incident: Incident) -> bool:
    """Whether the last mean return is below the one at which the environment counts as solved, or that is unknown.

    A critic that is off or a low entropy has done no harm in an environment that was solved.
    """
    process = incident.process
    threshold, returns = process.learning.return_threshold, process.series.get(EPISODE_RETURN_MEAN)
    if threshold is None or returns is None or not len(returns.values):
        return True
    return not returns.values[-1] >= threshold      # also for NaN


RULES = (
    LearningRule(
        code="TT601",
        fix="check that the log-probabilities of masked actions are large and negative, not -inf, and clamp the "
            "log-ratio (to 20) before exp; skip an update whose loss is not finite",
    ),
    LearningRule(
        code="TT602", min_observations=3, min_share=0.01,
        fix="lower the learning rate or the number of epochs per update, stop at 1.5 times the target KL, and clamp "
            "the log-ratio",
    ),
    LearningRule(
        code="TT603", min_observations=3, min_share=0.05,
        fix="lower the learning rate or the number of epochs per update; check that the masks are the same as when "
            "the actions were sampled",
    ),
    LearningRule(
        code="TT604",
        fix="compute the old log-probabilities in the same way as the new ones: same masks, same dropout (eval or "
            "train), same normalisation statistics, same recurrent state, same action after squashing",
    ),
    LearningRule(
        code="TT605", select=_lasting_collapse, is_problem=_is_unsolved,
        fix=fix_unless_clipped(
            "normalise returns, lower the value loss weight or the learning rate, clip gradients; give the critic a "
            "separate network body if the policy's gradient disturbs it"
        ),
    ),
    LearningRule(
        code="TT606", is_problem=_is_unsolved, milder="TT607",
        fix="double the entropy coefficient and lower the learning rate; a collapsed policy seldom recovers, so return "
            "to an earlier checkpoint",
    ),
    LearningRule(
        code="TT607", is_problem=_is_unsolved,
        fix="raise the entropy coefficient if the returns are still too low; at the end of training a low entropy is "
            "the goal",
    ),
    LearningRule(
        code="TT608", milder="TT609",
        fix="stop the epochs at 1.5 times the target KL, lower the learning rate, and inspect the advantages of that "
            "update",
    ),
    LearningRule(
        code="TT609", min_observations=3, min_share=0.05,
        fix="lower the learning rate or the number of epochs, or stop at 1.5 times the target KL",
    ),
    LearningRule(
        code="TT610",
        fix="plan fewer epochs per update or lower the learning rate: at present the KL divergence decides how long an "
            "update is",
    ),
    LearningRule(
        code="TT611",
        fix="check whether all rewards are equal or the critic returns a constant; clamp the deviation to a "
            "minimum before dividing by it",
    ),
    LearningRule(
        code="TT612",
        fix="lower the learning rate or the number of epochs per update, or use more samples per update",
    ),
    LearningRule(
        code="TT613", severity=_skipping_severity,
        fix="find the non-finite value of the first skipped update (TT401, TT402, TT601), and check that the old "
            "log-probabilities are finite",
    ),
    LearningRule(
        code="TT614", is_problem=_are_flat_to_the_end,
        fix="no episode was better than another, so nothing distinguishes good actions from bad ones: explore more (a "
            "larger entropy coefficient, more environments, longer episodes), shape the reward or start episodes "
            "closer to it, and check that rewards reach the trainer",
    ),
)
