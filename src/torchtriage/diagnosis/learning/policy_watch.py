"""The recurrent state and PPO part of an observation, with the memory of those before."""

from collections.abc import Iterator, Mapping

from torchtriage.diagnosis.learning import ppo as checks
from torchtriage.diagnosis.learning.limits import LearningLimits
from torchtriage.diagnosis.learning.memory import Memory
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.recording.series import (
    EPISODE_RETURN_MEAN,
    LSTM_C_RMS,
    LSTM_C_RMS_MAX,
    LSTM_H_RMS,
    LSTM_H_RMS_MAX,
    LSTM_HAS_INF,
    LSTM_HAS_NAN,
    LSTM_PREFIX,
    PPO_ADVANTAGE_STD,
    PPO_BELLMAN_ERROR,
    PPO_CLIP_FRACTION,
    PPO_EARLY_STOPPED,
    PPO_ENTROPY,
    PPO_EXPLAINED_VARIANCE,
    PPO_FIRST_RATIO_DEVIATION,
    PPO_KL,
    PPO_RATIO_MAX,
    PPO_RATIO_MIN,
    PPO_RETURNS_STD,
    PPO_UPDATES_SKIPPED_TOTAL,
    PPO_VALUE_CLIP_FRACTION,
    PPO_VALUE_LOSS,
)

ENTROPY = PPO_ENTROPY     # of a head: `ppo/entropy/op`
RETURN = EPISODE_RETURN_MEAN
POLICY_QUANTITIES = frozenset({
    LSTM_H_RMS, LSTM_C_RMS, LSTM_H_RMS_MAX, LSTM_C_RMS_MAX, LSTM_HAS_NAN, LSTM_HAS_INF, PPO_RATIO_MAX, PPO_RATIO_MIN,
    PPO_FIRST_RATIO_DEVIATION, PPO_KL, ENTROPY, PPO_VALUE_LOSS, PPO_BELLMAN_ERROR, PPO_EXPLAINED_VARIANCE, PPO_RETURNS_STD,
    PPO_CLIP_FRACTION, PPO_VALUE_CLIP_FRACTION, PPO_ADVANTAGE_STD, PPO_EARLY_STOPPED, PPO_UPDATES_SKIPPED_TOTAL, RETURN,
})


def policy_breaches(row: Mapping[str, float], is_half: bool, memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    yield from _recurrent(row, limits)
    yield from checks.ratios(row.get(PPO_RATIO_MAX), row.get(PPO_RATIO_MIN), limits)
    yield from checks.value_function(
        row.get(PPO_VALUE_LOSS), row.get(PPO_BELLMAN_ERROR), row.get(PPO_EXPLAINED_VARIANCE), row.get(PPO_RETURNS_STD), limits,
    )
    if PPO_FIRST_RATIO_DEVIATION in row:
        yield from checks.first_ratio(row[PPO_FIRST_RATIO_DEVIATION], is_half, limits)
    if PPO_KL in row:
        yield from checks.kl(row[PPO_KL], limits)
    if PPO_ADVANTAGE_STD in row:
        yield from checks.advantages(row[PPO_ADVANTAGE_STD], limits)
    for name, entropy in row.items():
        if name == ENTROPY or name.startswith(f"{ENTROPY}/"):
            yield from _entropy(name, entropy, memory, limits)
    yield from _clip_fraction(row, memory, limits)
    yield from _early_stop(row, memory, limits)
    yield from _skipped_updates(row, memory)
    if RETURN in row:
        yield from _flat_returns(row[RETURN], memory, limits)


def _recurrent(row: Mapping[str, float], limits: LearningLimits) -> Iterator[Breach]:
    has_nan, has_inf = row.get(LSTM_HAS_NAN, 0.0) > 0, row.get(LSTM_HAS_INF, 0.0) > 0
    yield from checks.recurrent_finite(has_nan, has_inf)
    if not has_nan and not has_inf:     # else the RMS is of what is left, or NaN itself
        for state in ("h", "c"):
            yield from checks.recurrent_range(state, row.get(f"{LSTM_PREFIX}{state}_rms"), row.get(f"{LSTM_PREFIX}{state}_rms_max"), limits)


def _entropy(name: str, entropy: float, memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    yield from checks.policy_finite(name, entropy)
    if not is_normalised(entropy):      # such as that of a Gaussian, which has no bounds to compare with
        return
    collapse, low = (
        memory.streak(f"{word}:{name}", entropy < limit, limits.entropy_patience, cleared=entropy > limits.entropy_clear * limit)
        for word, limit in (("collapse", limits.entropy_collapse), ("low", limits.entropy_low))
    )
    yield from checks.entropy(name, entropy, collapse, low, limits)


def is_normalised(entropy: float) -> bool:
    return 0.0 <= entropy <= 1.001      # a uniform policy may round to a little above 1


def _clip_fraction(row: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    share = row.get(PPO_CLIP_FRACTION)
    if share is None:
        return
    if memory.streak("clip_fraction", share > limits.clip_fraction_max, limits.clip_fraction_patience).is_active:
        yield Breach(
            code="TT612", type="clip_fraction_high", quantity=PPO_CLIP_FRACTION, value=share, limit=limits.clip_fraction_max,
            text=f"{share:.0%} of the samples were clipped",
        )


def _early_stop(row: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    stopped = row.get(PPO_EARLY_STOPPED)
    if stopped is None:
        return
    share, count = memory.share("early_stopped", stopped > 0, limits.early_stop_window)
    if count >= limits.early_stop_window and share >= limits.early_stop_share:
        yield Breach(
            code="TT610", type="early_stop_always", quantity=PPO_EARLY_STOPPED, value=share, limit=limits.early_stop_share,
            text=f"KL ended {share:.0%} of the last {count} updates early",
        )


def _skipped_updates(row: Mapping[str, float], memory: Memory) -> Iterator[Breach]:
    total = row.get(PPO_UPDATES_SKIPPED_TOTAL)
    if total is None:
        return
    grew = total > memory.numbers.get("updates_skipped", 0.0)
    memory.numbers["updates_skipped"] = total
    in_a_row = memory.streak("updates_skipped", grew, 1).count
    if grew:
        yield Breach(
            code="TT613", type="update_skipped", quantity=PPO_UPDATES_SKIPPED_TOTAL, value=in_a_row, limit=0.0,
            text=f"{total:.0f} updates skipped for a loss that is not finite, {in_a_row} in a row",
        )


def _flat_returns(value: float, memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    """From the first observation on: returns that come to rest at the end of a training are another matter."""
    first = memory.numbers.setdefault("first_return", value)
    is_flat = abs(value - first) <= 1e-6 * max(1.0, abs(first)) and not memory.numbers.get("returns_moved")
    memory.numbers["returns_moved"] = float(not is_flat)
    if memory.streak("flat_returns", is_flat, limits.flat_returns_patience).is_active:
        yield Breach(
            code="TT614", type="flat_returns", quantity=RETURN, value=value, limit=first,
            text=f"every episode so far has returned {short(value)}",
        )
