"""Spaces as the policy sees them: flat float32 observations, discrete or continuous actions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchtriage.errors import TriageError

# N environments, O observation size, A action size.
Array = Any  # a numpy array; numpy is untyped for mypy here


@dataclass(frozen=True, slots=True, kw_only=True)
class Spaces:
    """Sizes of an environment's observation and action; exactly one of `num_actions` and `action_size` is given."""

    observation_size: int
    num_actions: int | None = None  # discrete: actions 0 .. num_actions-1, int64 [N]
    action_size: int | None = None  # continuous: float32 [N, A], clipped to the bounds before the environment sees them
    low_A: tuple[float, ...] = ()
    high_A: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.num_actions is None) == (self.action_size is None):
            raise ValueError(
                "give num_actions (discrete) or action_size (continuous), "
                f"got num_actions={self.num_actions} and action_size={self.action_size}"
            )
        if self.action_size is not None and not len(self.low_A) == len(self.high_A) == self.action_size:
            raise ValueError(
                f"expected {self.action_size} bounds, got {len(self.low_A)} in low_A and {len(self.high_A)} in high_A"
            )


def spaces_of(name: str, observation_space: Any, action_space: Any) -> Spaces:
    """The sizes of one environment of gymnasium; a space that policies here do not support is refused."""
    from gymnasium.spaces import Box, Discrete

    match observation_space:
        case Box():
            observation_size = math.prod(observation_space.shape)
        case Discrete():
            observation_size = int(observation_space.n)
        case _:
            raise TriageError(
                f"observations of {name} are {observation_space}; a policy here sees Box or Discrete observations: "
                "register it wrapped in gymnasium.wrappers.FlattenObservation, which makes one Box of most spaces"
            )
    match action_space:
        case Discrete():
            return Spaces(observation_size=observation_size, num_actions=int(action_space.n))
        case Box() if np.issubdtype(action_space.dtype, np.floating):
            low_A, high_A = (tuple(map(float, bound.ravel())) for bound in (action_space.low, action_space.high))
            return Spaces(observation_size=observation_size, action_size=len(low_A), low_A=low_A, high_A=high_A)
        case _:
            raise TriageError(
                f"actions of {name} are {action_space}; a policy here gives Discrete actions, or a Box of floats: "
                "register it wrapped in a gymnasium.ActionWrapper that takes one of them, for instance "
                "by numbering the combinations of a MultiDiscrete or MultiBinary as one Discrete"
            )


def observation_encoder(space: Any) -> Callable[[Array], Array]:
    """Converts observations of N environments to a new float32 [N, O]: a Box is flattened, a Discrete is one-hot."""
    from gymnasium.spaces import Discrete

    if isinstance(space, Discrete):
        one_hot: Array = np.eye(int(space.n), dtype=np.float32)
        return lambda observation_N: one_hot[np.asarray(observation_N) - space.start]
    size = math.prod(space.shape)
    return lambda observation: np.array(observation, np.float32).reshape(-1, size)


def action_decoder(space: Any) -> Callable[[Array], Array]:
    """Converts actions of a policy to those of N environments.

    A Discrete may start above 0; a Box has bounds, a shape and a dtype.
    """
    from gymnasium.spaces import Discrete

    if isinstance(space, Discrete):
        return (lambda action_N: action_N + space.start) if space.start else (lambda action_N: action_N)
    low_A, high_A = space.low.reshape(-1), space.high.reshape(-1)
    return lambda action_NA: action_NA.clip(low_A, high_A).astype(space.dtype, copy=False).reshape(-1, *space.shape)
