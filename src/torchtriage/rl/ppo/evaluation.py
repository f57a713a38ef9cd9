"""Evaluation of a policy on separate environments, without learning."""

from collections.abc import Callable
from typing import Any

import torch

from torchtriage.rl.envs.protocol import Environments
from torchtriage.rl.policy.policy import Policy
from torchtriage.rl.ppo.rollout_normalizer import RolloutNormalizer

# N environments, O observation size, S numbers of recurrent state.
MAX_STEPS = 100_000  # per environment: one without a time limit may never end an episode


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate(
    policy: Policy,
    act: Callable[..., Any],
    normalizer: RolloutNormalizer,
    environments: Environments,
    num_episodes: int,
    *,
    seed: int,
    deterministic: bool = True,
) -> tuple[float, ...]:
    """The returns of `num_episodes` episodes, divided evenly among the environments.

    The first episodes to end would be the short ones.
    """
    num_envs = environments.num_envs
    num_left = [(num_episodes + number) // num_envs for number in range(num_envs)]
    generator = torch.Generator().manual_seed(seed)
    observation_NO = environments.reset(seed)
    state_NS, keep_N = policy.initial_state(num_envs), torch.zeros(num_envs)
    # Without noise the most likely action is taken; zeros keep the compiled step's shape.
    noise = torch.zeros_like(policy.noise(num_envs, generator=generator))
    returns: list[float] = []
    for _ in range(MAX_STEPS):
        if not deterministic:
            noise = policy.noise(num_envs, generator=generator)
        action, _, _, state_NS = act(normalizer.normalize(observation_NO), state_NS, keep_N, noise)
        outcome = environments.step(action)
        for number, episode_return, _ in outcome.episodes:
            if num_left[number]:
                num_left[number] -= 1
                returns.append(episode_return)
        if not any(num_left):
            break
        observation_NO, keep_N = outcome.observation_NO, (~outcome.starts_N).float()
    return tuple(returns)
