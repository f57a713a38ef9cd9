"""Small environments of gymnasium whose every step is known, or that are hard to save."""

import threading

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from torchtriage.rl.envs.gymnasium import GymnasiumEnvironments
from torchtriage.rl.envs.serial import SerialVectorEnv

GO = torch.zeros(2, dtype=torch.int64)


class Scripted(gymnasium.Env):
    """Shows [episode, step]; episodes of 2 steps end, those of odd number by truncation.
    Reward is 10 * episode + step.
    """

    observation_space, action_space = Box(-np.inf, np.inf, (2,)), Discrete(3)
    episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.step_number = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action):
        self.step_number += 1
        ended = self.step_number == 2
        return (
            self.seen(),
            10.0 * self.episode + self.step_number,
            ended and self.episode % 2 == 0,
            ended and self.episode % 2 == 1,
            {},
        )

    def seen(self):
        return np.array([self.episode, self.step_number], np.float32)


class Frugal(Scripted):
    """Reuses one array for all observations; SyncVectorEnv then loses the final observation at a reset."""

    def __init__(self):
        self.shown = np.zeros(2, np.float32)

    def seen(self):
        self.shown[:] = super().seen()
        return self.shown


class Noisy(gymnasium.Env):
    """Its path depends on its random numbers and the actions; `anchor` prevents pickling."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,)), Box(-1, 1, (2,))

    def __init__(self):
        self.anchor = threading.Lock()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=1)
        return self.position.astype(np.float32), {}

    def step(self, action):
        self.position = self.position + self.np_random.normal(size=1) * 0.1 + action.sum()
        action[:] = 0  # as some environments do
        return self.position.astype(np.float32), float(self.position[0]), bool(abs(self.position[0]) > 2), False, {}


class Forgetful(gymnasium.utils.EzPickle, Noisy):
    """Pickles without an error, but is restored as a new environment."""

    def __init__(self):
        gymnasium.utils.EzPickle.__init__(self)


class Unrepeatable(Noisy):
    def step(self, action):
        self.position = self.position + np.random.default_rng().normal(size=1) * 0.1
        return self.position.astype(np.float32), 0.0, False, False, {}


def serial(make, num_envs=2):
    return GymnasiumEnvironments(SerialVectorEnv(make, num_envs), "Test-v0")
