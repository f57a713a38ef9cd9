"""One PPO update as series, from its minibatches.   N samples of a minibatch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchtriage.recording.series import (
    PPO_ADVANTAGE_STD,
    PPO_CLIP_FRACTION,
    PPO_ENTROPY,
    PPO_EXPLAINED_VARIANCE,
    PPO_FIRST_RATIO_DEVIATION,
    PPO_KL,
    PPO_RATIO_MAX,
    PPO_RATIO_MIN,
    PPO_RETURNS_MEAN,
    PPO_RETURNS_STD,
    PPO_VALUE_LOSS,
)
from torchtriage.telemetry.ppo.loss_terms import CriticError, LossTerms

MAX_LOG_RATIO = 20.0
FLAT = 1e-6             # spread of advantages that are all the same


@dataclass(slots=True, kw_only=True, eq=False)
class FollowedMinibatch:
    """The terms of one loss. `weights` are those of a small parameter of the policy when it was computed."""

    terms: LossTerms
    weights: Any = None

    def on_host(self) -> None:
        """Replace tensors with arrays. Waits for a device, so it is called one rollout later."""
        surrogate = self.terms.surrogate
        assert surrogate is not None
        surrogate.ratio_N, surrogate.push_N = _array(surrogate.ratio_N), _array(surrogate.push_N)
        surrogate.parameter = None
        for error in self.terms.errors:
            error.error_N, error.value_N = _array(error.error_N), _array(error.value_N)
        for entropy in self.terms.entropies:
            entropy.nats = _array(entropy.nats)
        self.weights = _array(self.weights)

    @property
    def ratios(self) -> Any:
        assert self.terms.surrogate is not None
        return self.terms.surrogate.ratio_N.reshape(-1)

    @property
    def advantages(self) -> Any:
        """The factor that raises the probability of each action."""
        assert self.terms.surrogate is not None
        return -self.terms.surrogate.push_N.reshape(-1)

    @property
    def critic(self) -> CriticError | None:
        """The only error term with one number per sample; None if there are several, or none."""
        errors = [one for one in self.terms.errors if one.error_N.size == self.ratios.size]
        return errors[0] if len(errors) == 1 else None

    @property
    def targets(self) -> Any:
        """The value targets; None if the values could not be read."""
        critic = self.critic
        if critic is None or critic.value_N is None or critic.value_N.size != critic.error_N.size:
            return None
        return critic.value_N.reshape(-1) - critic.error_N.reshape(-1)


def _array(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().double().cpu().numpy()


@dataclass(slots=True, kw_only=True, eq=False)
class PolicyUpdate:
    """The minibatches between two rollouts. `rollout_size`: samples that were collected for it, if known."""

    step: int
    number: int = 0                     # updates before it, also those that were not read
    is_start_known: bool = False        # a rollout was observed before the first minibatch
    rollout_size: int | None = None
    terminal_rewards: Sequence[float] = ()
    has_equal_rewards: bool = False     # every step of the rollout had the same reward
    episode_values: dict[str, float] = field(default_factory=dict)      # of the last episodes, by series
    minibatches: list[FollowedMinibatch] = field(default_factory=list)

    def on_host(self) -> None:
        for minibatch in self.minibatches:
            minibatch.on_host()


def update_values(update: PolicyUpdate) -> dict[str, float]:
    """The numbers of an update by the names of their series."""
    ratio_N = np.concatenate([one.ratios for one in update.minibatches])
    log_ratio_N = np.clip(np.log(np.maximum(ratio_N, 1e-38)), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    first = update.minibatches[0]
    values = update.episode_values | {
        PPO_RATIO_MAX: float(ratio_N.max()), PPO_RATIO_MIN: float(ratio_N.min()),
        PPO_KL: float(np.mean(np.expm1(log_ratio_N) - log_ratio_N)) if np.isfinite(ratio_N).all() else math.nan,
    }
    if update.is_start_known:
        values[PPO_FIRST_RATIO_DEVIATION] = float(np.abs(first.ratios - 1.0).max())
    values |= _clipping(update) | _entropy(update) | _critic(update)
    return values


def _clipping(update: PolicyUpdate) -> dict[str, float]:
    surrogate = update.minibatches[0].terms.surrogate
    assert surrogate is not None
    if surrogate.low is None or surrogate.high is None:
        return {}
    ratio_N = np.concatenate([one.ratios for one in update.minibatches])
    return {PPO_CLIP_FRACTION: float(np.mean((ratio_N < surrogate.low) | (ratio_N > surrogate.high)))}


def _entropy(update: PolicyUpdate) -> dict[str, float]:
    """The entropy of a categorical policy; several heads cannot be distinguished, so nothing is recorded for them."""
    shares = []
    for minibatch in update.minibatches:
        known = [one.share for one in minibatch.terms.entropies if one.share is not None]
        if len(known) == 1:
            shares.append(known[0])
    return {PPO_ENTROPY: float(np.mean(shares))} if shares else {}


def _critic(update: PolicyUpdate) -> dict[str, float]:
    """The loss of the critic has a scale only if its targets are known."""
    first, judged = update.minibatches[0], [one for one in update.minibatches if one.critic is not None]
    if not judged:
        used = float(first.advantages.std())
        is_flat = update.is_start_known and used < FLAT
        return {PPO_ADVANTAGE_STD: used} if is_flat else {}     # normalised, so that its size says nothing else
    values = {PPO_ADVANTAGE_STD: _advantage_std(first)} if update.is_start_known and first.critic is not None else {}
    error_N = np.concatenate([one.critic.error_N.reshape(-1) for one in judged if one.critic is not None])
    value_loss = float(np.mean(error_N**2))
    targets = [one.targets for one in judged if one.targets is not None]
    if targets:
        target_N = np.concatenate(targets)      # of the samples that the value loss is of
        values |= {PPO_RETURNS_STD: float(target_N.std()), PPO_RETURNS_MEAN: float(target_N.mean())}
    if targets or not math.isfinite(value_loss):
        values[PPO_VALUE_LOSS] = value_loss
    untrained, critic = judged[0], judged[0].critic     # of an update with separate passes it is not the first
    if update.is_start_known and critic is not None and untrained.targets is not None and untrained.targets.std() > 0.0:
        values[PPO_EXPLAINED_VARIANCE] = 1.0 - float(critic.error_N.var() / untrained.targets.var())
    return values


def _advantage_std(first: FollowedMinibatch) -> float:
    """The spread of target minus value; that of the advantages as used where they were flattened on the way."""
    assert first.critic is not None
    used = float(first.advantages.std())
    return used if used < FLAT else float(first.critic.error_N.std())
