"""What must hold in any update of PPO, tested on its minibatches.   N samples."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchtriage.recording.facts import BrokenContract, to_dict
from torchtriage.recording.series import PPO_ENTROPY
from torchtriage.telemetry.ppo.policy_update import FollowedMinibatch, PolicyUpdate, update_values

PATIENCE = 3            # updates in a row
MIN_MINIBATCHES = 3     # of an update, to judge what they have in common
MIN_SAMPLES = 16        # of a minibatch, to judge a correlation
MIN_ENTROPY = 0.02      # normalised; at the start of a training it is near 1
SAME_RATIO = 1e-6       # float32 log-probabilities that were computed twice differ by less
SAME_POLICY = 1e-5      # those of the same policy, computed in batches of other sizes
USUAL_LOW, USUAL_HIGH = 0.8, 1.2        # the clipping range of the paper
FAR_SHARE = 0.1         # of the samples beyond that range, where nothing clips them
# Entropy coefficients in use are up to 0.1 per unit of normalised advantages. From 0.5 on the bonus outweighs them in a
# policy that is still near uniform.
MAX_ENTROPY_COEFFICIENT = 0.3
OUTWEIGHED = 0.5        # of the spread of the advantages
NEAR_UNIFORM = 0.9      # normalised entropy
# The advantage of generalized advantage estimation is target minus value, so their correlation is 1 in the
# first minibatch; 0.3 to 1 where targets are computed in another way, such as discounted returns.
AGREEING = 0.2
OPPOSED = -0.5
MIN_TERMINALS = 4       # ends of episodes in a rollout
MAX_END_SHARE = 0.25    # of the steps of a rollout that end an episode, for the others to have a future
# Mean target over the target of an end: several times larger where rewards are summed up, about 1 where one-step
# targets meet a critic that has not learned, and 0.5 where the next value is subtracted.
NO_FUTURE = 0.9
NEAR_SMALLEST, FAR_ABOVE = 1.3, 1.5     # times the smallest target: other ends of episodes, and the mean of all targets
CENTRED = 1e-3         # of the spread of targets: their mean, where the program subtracts it
REWARD_RTOL = 0.01      # of the target of an end, which is its reward unless rewards are scaled
LEARNED_AFTER = 8       # updates
NO_REWARD = 1e-5        # of a reward: a target of 0, with the rounding of value minus error
LOST_SHARE = 0.5        # of a reward, below which no target can be that holds one
EQUAL_SHARE = 0.9       # of the targets; steps in which a vector of environments resets have a target of 0
OTHER_SHARE = 0.9       # of the targets of all epochs are not of another one, where no sample is drawn twice
TARGET_RTOL, TARGET_ATOL = 1e-4, 1e-6     # rounding of a target that is read as value minus error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Breach:
    code: str
    count: int = 0
    total: int = 0
    names: tuple[str, ...] = ()
    value: float | None = None
    share: float | None = None


class PolicyContracts:
    """The contracts with their memory. A broken contract is kept once, with the step at which it was known."""

    def __init__(self) -> None:
        self._broken: dict[str, BrokenContract] = {}
        self._streaks: dict[str, int] = {}

    def facts(self) -> list[dict[str, Any]]:
        return [to_dict(one) for one in list(self._broken.values())]

    def judge(self, update: PolicyUpdate) -> None:
        breaches = {breach.code: breach for breach in _breaches(update)}
        if "TT621" in breaches and breaches.get("TT618", breaches["TT621"]).names:
            del breaches["TT618"]       # without a minus the smaller objective acts as the larger one
        for code in [*self._streaks, *breaches]:
            self._streaks[code] = self._streaks.get(code, 0) if code in breaches else 0
        for code, breach in breaches.items():
            self._streaks[code] += 1
            if self._streaks[code] >= PATIENCE:
                self._broken.setdefault(code, BrokenContract(
                    code=code, step=update.step, count=breach.count, total=breach.total, names=breach.names,
                    value=breach.value, share=breach.share,
                ))


def _breaches(update: PolicyUpdate) -> Iterator[_Breach]:
    first = update.minibatches[0]
    yield from _constants(first)
    yield from _signs(first)
    yield from _broadcast(first)
    yield from _clipping(update)
    yield from _entropy_size(first)
    if update.is_start_known:
        yield from _moving_ratio(update)
        yield from _agreement(first)
        yield from _same_samples(update)
        yield from _ends_of_episodes(update)


def _constants(first: FollowedMinibatch) -> Iterator[_Breach]:
    """TT615: old log-probabilities, advantages and value targets are constants."""
    surrogate = first.terms.surrogate
    assert surrogate is not None
    names = surrogate.trained_constants
    if any(error.is_target_trained for error in first.terms.errors):
        names += ("value targets",)
    if names:
        yield _Breach(code="TT615", names=names)


def _signs(first: FollowedMinibatch) -> Iterator[_Breach]:
    """TT616: each term has the sign, and the ratio the form, that its purpose needs."""
    surrogate = first.terms.surrogate
    assert surrogate is not None
    names = []
    if surrogate.is_inverted:
        names.append("the probability ratio, which is old over new")
    if surrogate.lacks_exp:
        names.append("the probability ratio, which lacks its exp()")
    if any(error.sign < 0 for error in first.terms.errors):
        names.append("the value loss, which is maximised")
    if first.terms.entropies and all(entropy.sign > 0 for entropy in first.terms.entropies):
        names.append("the entropy, which is minimised")
    if names:
        yield _Breach(code="TT616", names=tuple(names))


def _broadcast(first: FollowedMinibatch) -> Iterator[_Breach]:
    """TT617: one advantage per ratio, and one error of the critic per sample."""
    count, surrogate = first.ratios.size, first.terms.surrogate
    assert surrogate is not None
    if count > 1 and surrogate.num_products == count * count and first.advantages.size == count:
        yield _Breach(code="TT617", count=count, total=surrogate.num_products, names=("policy",))
        return
    for error in first.terms.errors:
        if count > 1 and error.error_N.size == count * count:
            yield _Breach(code="TT617", count=count, total=error.error_N.size)


def _clipping(update: PolicyUpdate) -> Iterator[_Breach]:
    """TT618: a ratio far from 1 gives the policy no further push."""
    surrogate = update.minibatches[0].terms.surrogate
    assert surrogate is not None
    if surrogate.is_optimistic:
        yield _Breach(code="TT618", names=("the larger of the two objectives is used",))
        return
    radius = surrogate.clip_radius
    if radius is not None and radius >= 1.0 and len(update.minibatches) >= MIN_MINIBATCHES:
        yield _Breach(code="TT618", value=radius)
        return
    is_clipped = surrogate.low is not None or surrogate.high is not None
    if is_clipped or any(one.terms.num_others for one in update.minibatches):
        return      # another term may be a penalty on the KL divergence
    ratio_N = np.concatenate([one.ratios for one in update.minibatches])
    share = float(np.mean((ratio_N < USUAL_LOW) | (ratio_N > USUAL_HIGH)))
    if share >= FAR_SHARE:
        yield _Breach(code="TT618", share=share)


def _entropy_size(first: FollowedMinibatch) -> Iterator[_Breach]:
    """TT627: the entropy bonus does not outweigh the advantages."""
    surrogate = first.terms.surrogate
    assert surrogate is not None
    bonuses = [one for one in first.terms.entropies if one.sign < 0]
    spread = float(first.advantages.std())
    if len(bonuses) != 1 or not surrogate.coefficient or not spread > 1e-9:
        return
    share = bonuses[0].share
    coefficient = bonuses[0].coefficient / surrogate.coefficient
    if coefficient < MAX_ENTROPY_COEFFICIENT or coefficient < OUTWEIGHED * spread:
        return
    if share is None or share >= NEAR_UNIFORM:
        yield _Breach(code="TT627", value=coefficient, share=spread)


def _moving_ratio(update: PolicyUpdate) -> Iterator[_Breach]:
    """TT619, TT620: the policy changes within an update, and the ratio shows it."""
    first, *later = update.minibatches
    if len(update.minibatches) < MIN_MINIBATCHES or first.weights is None:
        return
    has_changed = any(one.weights is not None and not np.array_equal(one.weights, first.weights) for one in later)
    farthest = max(float(np.abs(one.ratios - 1.0).max()) for one in update.minibatches)
    if farthest > (SAME_RATIO if has_changed else SAME_POLICY) or _may_be_certain(update):
        return      # without a change of this weight another one has changed, such as all but a fixed deviation
    yield _Breach(code="TT619" if has_changed else "TT620", count=len(later))


def _may_be_certain(update: PolicyUpdate) -> bool:
    """Whether the policy may have no entropy left: the ratio of an action that is certain is always 1, and its gradient
    is 0.
    """
    share = update_values(update).get(PPO_ENTROPY)
    is_gaussian = any(entropy.nats is None for entropy in update.minibatches[0].terms.entropies)
    if share is None:
        return not is_gaussian and update.number > LEARNED_AFTER
    return share < MIN_ENTROPY


def _agreement(first: FollowedMinibatch) -> Iterator[_Breach]:
    """TT621, TT622: the policy is pushed where targets exceed values."""
    correlation = agreement(first)
    if correlation is None or correlation >= AGREEING:
        return
    yield _Breach(code="TT621" if correlation <= OPPOSED else "TT622", value=correlation)


def agreement(first: FollowedMinibatch) -> float | None:
    """The correlation of the advantages as used with target minus value; None if either is constant or unknown."""
    critic = first.critic
    if critic is None or first.advantages.size < MIN_SAMPLES:
        return None
    advantage_N, gain_N = first.advantages, -critic.error_N.reshape(-1)
    if not (np.isfinite(advantage_N).all() and np.isfinite(gain_N).all()):
        return None
    if advantage_N.std() < 1e-9 or gain_N.std() < 1e-9:
        return None
    return float(np.corrcoef(advantage_N, gain_N)[0, 1])


def _same_samples(update: PolicyUpdate) -> Iterator[_Breach]:
    """TT623: the minibatches of an update are not all of the same samples."""
    first, *later = update.minibatches
    if update.rollout_size is None or len(later) < MIN_MINIBATCHES - 1 or 2 * first.ratios.size > update.rollout_size:
        return
    if first.advantages.std() <= 1e-9:
        return
    is_same = all(_has_same_samples(first, one) for one in later)
    if is_same or _has_same_samples_per_epoch(update, update.rollout_size // first.ratios.size):
        yield _Breach(
            code="TT623", count=first.advantages.size, total=update.rollout_size,
            names=() if is_same else ("epoch",))


def _has_same_samples_per_epoch(update: PolicyUpdate, size: int) -> bool:
    """Whether each epoch repeats one minibatch, another one per epoch. Those of a program that makes several steps on
    one minibatch before the next have no sample in common.
    """
    epochs = [update.minibatches[at:at + size] for at in range(0, len(update.minibatches), size)]
    if size < MIN_MINIBATCHES or len(epochs) < 2 or len(epochs[-1]) < size:
        return False
    if not all(_has_same_samples(epoch[0], one) for epoch in epochs for one in epoch[1:]):
        return False
    targets = [epoch[0].targets for epoch in epochs]
    unit = TARGET_RTOL * max(float(np.abs(target_N).max()) for target_N in targets) or 1.0
    drawn = [np.unique(np.round(target_N / unit)) for target_N in targets]
    return bool(np.unique(np.concatenate(drawn)).size < OTHER_SHARE * sum(one.size for one in drawn))


def _has_same_samples(first: FollowedMinibatch, other: FollowedMinibatch) -> bool:
    """Whether two minibatches have the same advantages and targets, in any order."""
    if first.targets is None or other.targets is None or first.advantages.size != other.advantages.size:
        return False
    if not np.array_equal(np.sort(first.advantages), np.sort(other.advantages)):
        return False
    return bool(np.allclose(np.sort(first.targets), np.sort(other.targets), rtol=TARGET_RTOL, atol=1e-5))


def _ends_of_episodes(update: PolicyUpdate) -> Iterator[_Breach]:
    """TT624 to TT626: the target of a step that ends an episode is its reward, and those of other steps are larger.

    It is judged where all rewards are equal, as then the targets of all ends are equal too, whatever scales them.
    """
    count = len(update.terminal_rewards)
    if count < MIN_TERMINALS or not update.has_equal_rewards or update.rollout_size is None:
        return
    targets = [one.targets for one in update.minibatches]
    if any(one is None for one in targets) or sum(one.size for one in targets) < update.rollout_size:
        return
    target_N = np.concatenate(targets)[:update.rollout_size]
    if not np.isfinite(target_N).all() or count > MAX_END_SHARE * update.rollout_size:
        return
    if abs(float(target_N.mean())) <= CENTRED * float(target_N.std()):
        return      # the program subtracts their mean
    num_equal, at_end = _most_equal(target_N)
    reward = update.terminal_rewards[0]
    num_rewards = int(np.sum(np.abs(target_N - reward) <= TARGET_RTOL * abs(reward) + _rounding(target_N)))
    if reward and num_equal > num_rewards >= count // 2:     # others are equal too, such as those far from an end
        num_equal, at_end = num_rewards, reward
    if num_equal < count // 2:
        yield from _without_ends(target_N, count, reward)
    elif reward and abs(at_end) <= NO_REWARD * abs(reward):
        yield from _ends_at_zero(target_N, count, reward)
    elif at_end:
        is_constant = num_equal >= EQUAL_SHARE * target_N.size
        is_reward = math.isclose(at_end, reward, rel_tol=REWARD_RTOL)
        is_small = is_reward and update.number >= LEARNED_AFTER and float(target_N.mean()) / at_end <= NO_FUTURE
        if is_constant or is_small:
            yield _Breach(code="TT625", count=count, value=at_end, share=float(target_N.mean()))


def _ends_at_zero(target_N: Any, count: int, reward: float) -> Iterator[_Breach]:
    """TT626, or TT624 where the targets hold rewards: the step that resets an environment has a reward of 0, and its
    target is 0 if the flag of the end is applied one step late.
    """
    # Rewards that the program scales down give all targets their sign.
    zero = NO_REWARD * abs(reward)
    if np.abs(target_N).max() < LOST_SHARE * abs(reward) and target_N.min() < -zero and target_N.max() > zero:
        yield _Breach(code="TT626", count=count, value=reward, share=float(np.abs(target_N).max()))
    elif abs(float(target_N.mean())) >= abs(reward):
        yield _Breach(code="TT624", count=count, value=reward, share=0.0)


def _without_ends(target_N: Any, count: int, reward: float) -> Iterator[_Breach]:
    """TT624: no targets are equal. Those of ends may differ a little, where the program normalises rewards as it goes;
    they are then the smallest, far below the others.
    """
    size_N = np.abs(target_N)
    smallest = float(size_N.min())
    has_one_sign = bool(np.all(target_N > 0) or np.all(target_N < 0))
    has_low = int(np.sum(size_N <= NEAR_SMALLEST * smallest)) >= count // 2
    if has_one_sign and not (has_low and float(size_N.mean()) >= FAR_ABOVE * smallest):
        yield _Breach(code="TT624", count=count, value=reward, share=float(target_N[size_N.argmin()]))


def _rounding(target_N: Any) -> float:
    return TARGET_ATOL * float(np.abs(target_N).max())


def _most_equal(values_N: Any) -> tuple[int, float]:
    """The size and the value of the largest set of values that are equal but for rounding."""
    sorted_N = np.sort(values_N)
    width_N = TARGET_RTOL * np.abs(sorted_N) + _rounding(sorted_N)
    ends_N = np.searchsorted(sorted_N, sorted_N + width_N, side="right")
    count_N = ends_N - np.arange(sorted_N.size)
    place = int(count_N.argmax())
    return int(count_N[place]), float(sorted_N[place])
