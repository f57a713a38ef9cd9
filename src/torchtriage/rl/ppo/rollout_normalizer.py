"""Normalization of a rollout, with statistics that change only between rollouts.

Shape suffixes: T steps, N environments, O observation size.
"""

import torch
from torch import Tensor, nn

from torchtriage.rl.config import TrainConfig
from torchtriage.rl.normalize.normalizers import CLIP, RewardNormalizer, RunningMeanStd, ValueNormalizer
from torchtriage.rl.ppo.rollout import Rollout


class RolloutNormalizer(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """Normalizes observations, rewards and values, each if the config says so.

    It is one module, so that one state dict has all statistics. A rollout is normalized by the statistics of earlier
    rollouts and added to them at its end: a step costs three operations instead of thirty, and the update sees the
    same numbers as the policy that acted.
    """

    return_N: Tensor
    shift_O: Tensor
    factor_O: Tensor

    def __init__(self, config: TrainConfig, observation_size: int) -> None:
        super().__init__()
        self.gamma = config.gamma
        self.observations = RunningMeanStd(observation_size) if config.normalize_observation else None
        self.rewards = RewardNormalizer() if config.normalize_reward else None
        self.values = ValueNormalizer() if config.normalize_value else None
        # Discounted returns of the current episodes.
        self.register_buffer("return_N", torch.zeros(config.envs, dtype=torch.float64))
        self.register_buffer("shift_O", torch.zeros(observation_size))
        self.register_buffer("factor_O", torch.ones(observation_size))
        self._raw_TNO = torch.zeros(config.steps if config.normalize_observation else 0, config.envs, observation_size)

    def normalize(self, observation_NO: Tensor, step: int | None = None) -> Tensor:
        """The observation as the policy sees it; with `step`, a step of the rollout, it enters the statistics."""
        if self.observations is None:
            return observation_NO
        if step is not None:
            self._raw_TNO[step] = observation_NO
        return ((observation_NO - self.shift_O) * self.factor_O).clamp_(-CLIP, CLIP)

    def finish(self, rollout: Rollout, last_value_N: Tensor, gae_lambda: float) -> None:
        """Fill in advantages and returns of the rollout, then add the rollout to the statistics."""
        if self.rewards is not None:
            self._scale_rewards(rollout, self.rewards)
        scale = self.values.scale.to(last_value_N.dtype) if self.values is not None else None
        if scale is not None:
            rollout.value_TN.mul_(scale)
            rollout.final_value_TN.mul_(scale)
            last_value_N = last_value_N * scale
        rollout.finish(last_value_N, self.gamma, gae_lambda)
        if self.values is not None and scale is not None:
            self.values.update(rollout.return_TN, rollout.live_TN)
            for target_TN in (rollout.value_TN, rollout.return_TN, rollout.advantage_TN, rollout.error_TN):
                target_TN.div_(scale)
        if self.observations is not None:
            self.observations.update(self._raw_TNO, rollout.live_TN)
            self.shift_O.copy_(self.observations.mean)
            self.factor_O.copy_((self.observations.var + self.observations.epsilon).rsqrt())

    def _scale_rewards(self, rollout: Rollout, rewards: RewardNormalizer) -> None:
        """Divide by the standard deviation of discounted returns, as gymnasium and Stable-Baselines3 do.

        Rewards that are all equal have a scale this way, too.
        """
        returns_TN = torch.empty(rollout.reward_TN.shape, dtype=torch.float64)
        return_N, sums_TN = self.return_N.numpy(), returns_TN.numpy()
        ended_TN = (rollout.terminated_TN | rollout.truncated_TN).numpy()
        for step, reward_N in enumerate(rollout.reward_TN.numpy()):
            return_N *= self.gamma
            return_N += reward_N
            sums_TN[step] = return_N
            return_N[ended_TN[step]] = 0.0
        rewards.update(returns_TN, rollout.live_TN)
        rollout.reward_TN.copy_(rewards.normalize(rollout.reward_TN))
