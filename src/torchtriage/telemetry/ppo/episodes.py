"""The episodes of the environments that a program steps.   T steps, E environments."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchtriage.recording.series import EPISODE_LENGTH_MEAN, EPISODE_RETURN_MEAN
from torchtriage.telemetry.ppo.policy_update import PolicyUpdate

NUM_RECENT = 100        # episodes of the recorded means


class EnvironmentStep(NamedTuple):
    """The result of one step: numbers, or arrays with one element per environment."""

    key: int            # of the environment
    reward: Any
    terminated: Any
    truncated: Any


class _Running:
    """The unfinished episodes of one environment, or of a vector of them."""

    def __init__(self, count: int) -> None:
        self.return_E = np.zeros(count)
        self.length_E = np.zeros(count)
        self.was_done_E: Any = np.zeros(count, dtype=bool)


class Episodes:
    """Sums up rewards. The environment with the most steps since the last update is the one that is learned from."""

    def __init__(self) -> None:
        self._running: dict[int, _Running] = {}
        self._returns: deque[float] = deque(maxlen=NUM_RECENT)
        self._lengths: deque[float] = deque(maxlen=NUM_RECENT)
        self._rewards: list[float] = []
        self._terminal_rewards: list[float] = []
        self._num_steps = 0

    def add(self, steps: Iterable[EnvironmentStep]) -> None:
        """The steps of one rollout, in order."""
        by_key: dict[int, list[EnvironmentStep]] = {}
        for step in steps:
            by_key.setdefault(step.key, []).append(step)
        if by_key:
            key = max(by_key, key=lambda key: len(by_key[key]))
            self._add_rollout(key, by_key[key])

    def describe(self, update: PolicyUpdate) -> None:
        """Add what is known of the rollout before an update."""
        if self._num_steps:
            update.rollout_size = self._num_steps
            update.terminal_rewards = tuple(self._terminal_rewards)
            update.has_equal_rewards = len(set(self._rewards)) == 1
        if self._returns:
            update.episode_values = {
                EPISODE_RETURN_MEAN: float(np.mean(self._returns)), EPISODE_LENGTH_MEAN: float(np.mean(self._lengths)),
            }

    def _add_rollout(self, key: int, steps: Sequence[EnvironmentStep]) -> None:
        reward_TE = _table([step.reward for step in steps], float)
        terminated_TE = _table([step.terminated for step in steps], bool)
        truncated_TE = _table([step.truncated for step in steps], bool)
        self._rewards, self._terminal_rewards, self._num_steps = [], [], reward_TE.size
        if reward_TE.shape != terminated_TE.shape or reward_TE.shape != truncated_TE.shape:
            self._num_steps = 0
            return
        running = self._running.get(key)
        if running is None or running.return_E.size != reward_TE.shape[1]:
            running = self._running[key] = _Running(reward_TE.shape[1])
        is_vector = np.ndim(steps[0].reward) > 0
        distinct: set[float] = set()
        for reward_E, terminated_E, truncated_E in zip(reward_TE, terminated_TE, truncated_TE, strict=True):
            # A vector of environments resets in the step after the end of an episode, whose reward is 0.
            is_reset_E = running.was_done_E & (reward_E == 0.0) if is_vector else np.zeros_like(terminated_E)
            running.return_E += reward_E
            running.length_E += ~is_reset_E
            distinct.update(reward_E[~is_reset_E].tolist())
            done_E = terminated_E | truncated_E
            if done_E.any():
                self._terminal_rewards += reward_E[terminated_E & ~is_reset_E].tolist()
                self._returns.extend(running.return_E[done_E].tolist())
                self._lengths.extend(running.length_E[done_E].tolist())
                running.return_E[done_E] = running.length_E[done_E] = 0.0
            running.was_done_E = done_E
        self._rewards = [value for value in distinct if math.isfinite(value)]


def _table(values: Sequence[Any], kind: type) -> Any:
    """One row per step."""
    table = np.asarray(values, dtype=kind)
    return table.reshape(len(values), -1)
