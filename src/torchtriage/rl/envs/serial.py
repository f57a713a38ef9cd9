"""Gymnasium environments stepped one after another in this process, which can be saved in the middle of an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from torchtriage.rl.envs.spaces import Array
from torchtriage.rl.envs.state_data import NotDataError, to_data

# N environments.


@dataclass(slots=True)
class Tape:
    """The episode of an environment so far: the state of its random numbers before it, and its actions."""

    start: int | Mapping[str, Any]  # the seed of the reset, or the state of the bit generator
    actions: list[Any] = field(default_factory=list)

    def play(self, env: Env[Any, Any]) -> Any:
        """Replay the episode in `env`; returns its observation, None if the episode ended on the way."""
        if isinstance(self.start, int):
            observation, _ = env.reset(seed=self.start)
        else:
            env.unwrapped.np_random.bit_generator.state = self.start
            observation, _ = env.reset()
        for action in self.actions:
            # A copy, because an environment may write into the action it was given.
            observation, _, terminated, truncated, _ = env.step(np.copy(action)[()])
            if terminated or truncated:
                return None
        return observation


class SerialVectorEnv(VectorEnv[Any, Any, Any]):
    """A faster SyncVectorEnv that starts the next episode in the step in which one ends, so no transition is dead.

    Observations are overwritten by the next step. Of the infos of the environments only final observations are passed
    on.
    """

    def __init__(self, make: Callable[[], Env[Any, Any]], num_envs: int) -> None:
        self.envs = [make() for _ in range(num_envs)]
        self.num_envs, first = num_envs, self.envs[0]
        self.spec = first.spec
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.tapes: list[Tape] | None = None  # kept only for environments whose state is not data
        self.observations: Array = create_empty_array(self.single_observation_space, num_envs, fn=np.zeros)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        # Seeds from a SeedSequence: with seed + index, run 1 would share all but one of its environments with run 0.
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(self.num_envs)]
        for index, (env, single_seed) in enumerate(zip(self.envs, seeds, strict=True)):
            self.observations[index], _ = env.reset(seed=single_seed, options=options)
        self.tapes = None if is_data(self.envs[0]) else [Tape(single_seed) for single_seed in seeds]
        return self.observations, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        if self.tapes is not None:
            for tape, action in zip(self.tapes, actions, strict=True):
                tape.actions.append(np.copy(action))  # an environment may write into the action it was given
        rewards: list[Any] = []
        finals: dict[int, Any] = {}
        terminated_N: Array = np.zeros(self.num_envs, bool)
        truncated_N: Array = np.zeros(self.num_envs, bool)
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            observation, reward, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                terminated_N[index], truncated_N[index] = terminated, truncated
                finals[index] = np.copy(observation)  # an environment may reuse one array for all its observations
                observation = self.next_episode(index)
            self.observations[index] = observation
            rewards.append(reward)
        info = {}
        if finals:  # in gymnasium's form: an array of observations, and a mask of its valid entries
            info = {"final_obs": np.full(self.num_envs, None, object), "_final_obs": terminated_N | truncated_N}
            for index, final in finals.items():
                info["final_obs"][index] = final
        return self.observations, np.array(rewards), terminated_N, truncated_N, info

    def next_episode(self, index: int) -> Any:
        """Reset one environment; returns its first observation."""
        env = self.envs[index]
        if self.tapes is not None:
            self.tapes[index] = Tape(env.unwrapped.np_random.bit_generator.state)
        return env.reset()[0]

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


def is_data(env: Env[Any, Any]) -> bool:
    """Whether the state of an environment can be saved as data; that of a simulator (Box2D, MuJoCo, Atari) cannot."""
    try:
        to_data(env, "env")
    except NotDataError:
        return False
    return True
