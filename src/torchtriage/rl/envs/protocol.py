"""The protocol of trainable environments: N environments that are stepped together."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from torchtriage.errors import TriageError
from torchtriage.rl.envs.spaces import Spaces

# N environments, O observation size.


class Outcome(NamedTuple):
    """The result of one step of all environments. Read-only: steps in which no episode ended share their masks."""

    observation_NO: Tensor  # the next observation, float32
    reward_N: Tensor  # float32
    terminated_N: Tensor  # bool
    truncated_N: Tensor  # bool: bootstrap from final_NO
    final_NO: Tensor  # the true last observation of an episode that ended, else observation_NO
    dead_N: Tensor  # bool: not a transition, since an autoreset ignored the action; masked everywhere
    starts_N: Tensor  # bool: observation_NO is the first of an episode (recurrent state must be zero)
    episodes: list[tuple[int, float, int]]  # (environment, return, length) of the episodes that ended in this step


class Environments(Protocol):
    """N environments behind one step."""

    spaces: Spaces
    num_envs: int

    def reset(self, seed: int) -> Tensor:
        """Start new episodes; returns the first observation_NO."""

    def step(self, actions: Tensor) -> Outcome:
        """Step with the actions of the policy."""

    def state(self) -> dict[str, Any]:
        """Everything needed to continue exactly; can be saved by torch.save."""

    def load_state(self, state: dict[str, Any]) -> Tensor:
        """Continue from a state; returns the current observation_NO."""

    def close(self) -> None:
        """Release the resources of the environments."""


def make_environments(name: str, num_envs: int, stepping: str = "auto") -> Environments:
    """`num_envs` environments with gymnasium's id `name`, stepped one by one ("serial") or at once ("vector")."""
    try:
        import gymnasium  # noqa: F401  # the extra [rl]; custom environments do not need it
    except ImportError as error:
        raise TriageError(
            "environments come from gymnasium, which is not installed: pip install 'torchtriage[rl]'"
        ) from error
    from torchtriage.rl.envs.gymnasium import GymnasiumEnvironments
    from torchtriage.rl.envs.make import make_vector

    return GymnasiumEnvironments(make_vector(name, num_envs, stepping), name)
