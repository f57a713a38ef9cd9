"""Any vector environment of gymnasium as `Environments`.

It handles every autoreset mode, checks that numbers are finite, counts episodes, and saves its exact state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from torchtriage.errors import TriageError
from torchtriage.rl.envs.protocol import Outcome
from torchtriage.rl.envs.saving import load_vector, save_vector
from torchtriage.rl.envs.spaces import Array, action_decoder, observation_encoder, spaces_of

# N environments, O observation size.


class GymnasiumEnvironments:
    """Steps a vector environment.

    A step in which no episode ended costs a few calls of numpy and torch, for any number of environments.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any], name: str) -> None:
        self.spaces = spaces_of(name, vector.single_observation_space, vector.single_action_space)
        self.vector, self.name, self.num_envs = vector, name, vector.num_envs
        # The return at which the environment counts as solved.
        self.return_threshold: float | None = getattr(vector.spec, "reward_threshold", None)
        self.autoreset = _autoreset_mode(vector, name)
        self._encode = observation_encoder(vector.single_observation_space)
        self._decode = action_decoder(vector.single_action_space)
        self._none_N = torch.zeros(self.num_envs, dtype=torch.bool)
        self._zeros_NO: Array = np.zeros((self.num_envs, self.spaces.observation_size), np.float32)
        self._observation_NO: Array
        self._return_N: Array
        self._begun_N: Array  # the step after which each episode began
        self._waiting_N: Array | None  # ended; the next step resets them and ignores their action (NEXT_STEP)
        self._begin(seed=0)

    def reset(self, seed: int) -> Tensor:
        """Start new episodes; returns the first observation_NO."""
        self._begin(seed)
        self._observation_NO = self._encode(self.vector.reset(seed=seed)[0])
        self._check(self._observation_NO, self._zeros_NO[:, 0], None)
        return torch.from_numpy(self._observation_NO)

    def step(self, actions: Tensor) -> Outcome:
        """Step with the actions of the policy: continuous ones are clipped to their bounds here."""
        env_actions = self._decode(actions.numpy(force=True))
        observation, reward, terminated_N, truncated_N, info = self.vector.step(env_actions)
        # Copies: a vector environment may write its next step into the arrays it returned.
        self._observation_NO, reward_N = self._encode(observation), np.array(reward, np.float32)
        self.num_steps += 1
        if self._waiting_N is not None or np.count_nonzero(terminated_N | truncated_N):
            return self._step_between_episodes(reward_N, terminated_N, truncated_N, info, env_actions)
        self._check(self._observation_NO, reward_N, env_actions)
        self._return_N += reward_N
        observation_NO, none_N = torch.from_numpy(self._observation_NO), self._none_N
        return Outcome(observation_NO, torch.from_numpy(reward_N), none_N, none_N, observation_NO, none_N, none_N, [])

    def _step_between_episodes(
        self,
        reward_N: Array,
        terminated_N: Array,
        truncated_N: Array,
        info: dict[str, Any],
        env_actions: Array,
    ) -> Outcome:
        """The rest of a step in which an episode ended, or begins where a reset takes a separate step."""
        terminated_N, truncated_N, dead_N = terminated_N.copy(), truncated_N.copy(), self._none_N.numpy()
        if self._waiting_N is not None:  # the values of a step that did not happen are meaningless
            dead_N = self._waiting_N
            reward_N[dead_N], terminated_N[dead_N], truncated_N[dead_N] = 0, False, False
        ended_N, final_NO = terminated_N | truncated_N, self._observation_NO
        if self.autoreset is AutoresetMode.NEXT_STEP:
            self._waiting_N = ended_N if ended_N.any() else None
            starts_N = dead_N
        else:
            self._observation_NO, final_NO = self._first_and_final(ended_N, info)
            starts_N = ended_N
        self._check(final_NO, reward_N, env_actions)
        self._check(self._observation_NO, reward_N, env_actions)
        self._return_N += reward_N
        episodes = [
            (index, float(self._return_N[index]), int(self.num_steps - self._begun_N[index]))
            for index in np.flatnonzero(ended_N).tolist()
        ]
        self._return_N[starts_N], self._begun_N[starts_N] = 0, self.num_steps
        observation_NO, reward, terminated, truncated, final, dead, starts = map(
            torch.from_numpy, (self._observation_NO, reward_N, terminated_N, truncated_N, final_NO, dead_N, starts_N)
        )
        return Outcome(observation_NO, reward, terminated, truncated, final, dead, starts, episodes)

    def _first_and_final(self, ended_N: Array, info: dict[str, Any]) -> tuple[Array, Array]:
        """The next observation, and the one that would have followed if no episode had ended."""
        if self.autoreset is AutoresetMode.DISABLED:
            final_NO = self._observation_NO
            return self._encode(self.vector.reset(options={"reset_mask": ended_N.copy()})[0]), final_NO
        if "final_obs" not in info:
            raise TriageError(
                f"{self.name} resets in the same step and must give the last observation of an episode as"
                f" info['final_obs'], found only {sorted(info)}; without it a truncated episode cannot be valued"
            )
        final_NO = self._observation_NO.copy()
        final_NO[ended_N] = self._encode(np.stack(info["final_obs"][ended_N]))
        return self._observation_NO, final_NO

    def state(self) -> dict[str, Any]:
        """Everything needed to continue exactly; warns with the reason if that is not possible."""
        waiting_N = self._none_N.numpy() if self._waiting_N is None else self._waiting_N
        arrays = {
            "observation": self._observation_NO,
            "waiting": waiting_N,
            "return": self._return_N,
            "begun": self._begun_N,
        }
        return {
            "seed": self._seed,
            "num_steps": self.num_steps,
            "vector": save_vector(self.vector, self.name),
            **{key: torch.from_numpy(array).clone() for key, array in arrays.items()},
        }

    def load_state(self, state: dict[str, Any]) -> Tensor:
        """Continue from a state of the same environment and number of environments; returns observation_NO."""
        expected, actual = self._zeros_NO.shape, tuple(state["observation"].shape)
        if actual != expected:
            raise TriageError(
                f"expected the state of {expected[0]} environments with {expected[1]} numbers each ({self.name}), "
                f"found {actual[0]} with {actual[1]}; resume with the settings it was saved with"
            )
        self._begin(state["seed"])
        self.num_steps = state["num_steps"]
        self._observation_NO = _array_of(state, "observation", self._zeros_NO)
        waiting_N = _array_of(state, "waiting", self._none_N.numpy())
        self._return_N = _array_of(state, "return", self._return_N)
        self._begun_N = _array_of(state, "begun", self._begun_N)
        restarted = load_vector(self.vector, state["vector"], self.name, seed=(self._seed, self.num_steps))
        for index, observation in restarted.items():
            self._observation_NO[index] = self._encode(observation[None])
            waiting_N[index], self._return_N[index], self._begun_N[index] = False, 0, self.num_steps
        self._waiting_N = waiting_N if waiting_N.any() else None
        return torch.from_numpy(self._observation_NO.copy())

    def close(self) -> None:
        """Release the resources of the environments."""
        self.vector.close()

    def _begin(self, seed: int) -> None:
        self._seed = seed
        self.num_steps = 0
        self._observation_NO, self._waiting_N = self._zeros_NO, None
        self._return_N, self._begun_N = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)

    def _check(self, observation_NO: Array, reward_N: Array, env_actions: Array | None) -> None:
        # 0 times a finite number is 0, otherwise NaN: a dot product takes a third of the time of isfinite().all().
        if math.isfinite(np.vdot(observation_NO, self._zeros_NO) + np.vdot(reward_N, self._zeros_NO[:, 0])):
            return
        index = int(np.flatnonzero(~(np.isfinite(observation_NO).all(1) & np.isfinite(reward_N)))[0])
        bad = {f"observation[{i}]": x for i, x in enumerate(observation_NO[index].tolist()) if not math.isfinite(x)}
        if not math.isfinite(reward_N[index]):
            bad["reward"] = float(reward_N[index])
        if env_actions is not None and not np.isfinite(env_actions[index]).all():
            advice = (
                f"its action {env_actions[index].tolist()} was not finite either, so the policy diverged first: lower"
                " the learning rate"
            )
        else:
            advice = "its action was finite, so look for the cause in the environment, or clip there"
        raise TriageError(
            f"environment {index} of {self.name} gave numbers that are not finite at step {self.num_steps}: "
            f"{', '.join(f'{name} is {x}' for name, x in bad.items())}; {advice}"
        )


def _array_of(state: dict[str, Any], name: str, like: Array) -> Array:
    array = state[name].numpy(force=True).copy()
    if (array.shape, array.dtype) != (like.shape, like.dtype):
        raise ValueError(f"expected {name} as {like.dtype} of shape {like.shape}, found {array.dtype} of {array.shape}")
    return array


def _autoreset_mode(vector: VectorEnv[Any, Any, Any], name: str) -> AutoresetMode:
    mode = vector.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise TriageError(
            f"{name} must declare when it resets an environment whose episode ended, found metadata['autoreset_mode']"
            f" {mode!r}; set it to a gymnasium.vector.AutoresetMode: with a wrong guess, values would be learned across"
            " the end of episodes"
        )
    return mode
