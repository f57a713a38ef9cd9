"""CartPole that shows positions but not velocities: a policy without memory cannot solve it."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector.utils import batch_space

from torchtriage.rl.envs.spaces import Array

NO_VELOCITIES = "torchtriage/CartPoleNoVel-v1"
VISIBLE = slice(0, None, 2)  # of position, velocity, angle, angular velocity


class CartPoleNoVelEnv(CartPoleEnv):
    """One cart pole."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.observation_space = _visible_part(self.observation_space)

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(**options)
        return observation[VISIBLE], info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, *outcome = super().step(action)  # type: ignore[no-untyped-call]
        return observation[VISIBLE], *outcome


class CartPoleNoVelVectorEnv(CartPoleVectorEnv):
    """Many cart poles at once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.single_observation_space = _visible_part(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(**options)
        return observation[:, VISIBLE], info

    def step(self, action: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        observation, *outcome = super().step(action)
        return observation[:, VISIBLE], *outcome


def register() -> None:
    """Register it with gymnasium, as CartPole-v1 is."""
    if NO_VELOCITIES not in gymnasium.registry:
        gymnasium.register(
            NO_VELOCITIES,
            entry_point=CartPoleNoVelEnv,
            vector_entry_point=CartPoleNoVelVectorEnv,
            max_episode_steps=500,
            reward_threshold=475.0,
        )


def _visible_part(space: Any) -> Box:
    return Box(space.low[VISIBLE], space.high[VISIBLE])
