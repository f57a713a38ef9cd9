"""Anything with this shape can be trained on: N environments stepped together, each outcome saying what is real in it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from torchtriage.errors import TriageError
from torchtriage.rl.spaces import Spaces

# N environments, O observation size.


class Outcome(NamedTuple):
    """What came of one step of all environments. Read only: steps in which no episode ended share their masks."""

    observation_NO: Tensor     # what the policy sees next, float32
    reward_N: Tensor           # float32
    terminated_N: Tensor       # bool
    truncated_N: Tensor        # bool: bootstrap from final_NO
    final_NO: Tensor           # the true last observation of an episode that ended, else observation_NO
    dead_N: Tensor             # bool: this transition never happened (its action was ignored by an autoreset); it is masked everywhere
    starts_N: Tensor           # bool: observation_NO is the first of an episode (recurrent state must be zero)
    episodes: list[tuple[int, float, int]]     # (environment, return, length) of those that ended in this step


class Environments(Protocol):
    """N environments behind one step."""

    spaces: Spaces
    num_envs: int

    def reset(self, seed: int) -> Tensor:
        """Start all episodes anew; the first observation_NO."""

    def step(self, actions: Tensor) -> Outcome:
        """Take the actions as the policy gave them."""

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly; torch.save takes it."""

    def load_state(self, state: dict[str, Any]) -> Tensor:
        """Go on from a state; the current observation_NO."""

    def close(self) -> None:
        """Free what the environments hold."""


def make_environments(name: str, num_envs: int, stepping: str = "auto") -> Environments:
    """`num_envs` environments that gymnasium knows as `name`, stepped one after another ("serial") or all at once ("vector")."""
    try:
        import gymnasium  # noqa: F401  # the extra [rl]: whoever brings environments of their own needs none
    except ImportError as error:
        raise TriageError("environments come from gymnasium, which is not installed: pip install 'torchtriage[rl]'") from error
    from torchtriage.rl.gymnasium_environments import GymnasiumEnvironments
    from torchtriage.rl.making import make_vector

    return GymnasiumEnvironments(make_vector(name, num_envs, stepping), name)
