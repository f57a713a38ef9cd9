"""Reinforcement learning: PPO compiled whole and watched whole, with normalizers that compile whole and resume exactly.

Public names load on first use: all but the settings import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchtriage.rl.config import TrainConfig as TrainConfig
    from torchtriage.rl.config import resolved as resolved
    from torchtriage.rl.environments import Environments as Environments
    from torchtriage.rl.environments import Outcome as Outcome
    from torchtriage.rl.environments import make_environments as make_environments
    from torchtriage.rl.normalization import RewardNormalizer as RewardNormalizer
    from torchtriage.rl.normalization import RunningMeanStd as RunningMeanStd
    from torchtriage.rl.normalization import ValueNormalizer as ValueNormalizer
    from torchtriage.rl.policy import Policy as Policy
    from torchtriage.rl.results import Results as Results
    from torchtriage.rl.trainer import Trainer as Trainer

_HOMES = {
    "config": ("TrainConfig", "resolved"), "environments": ("Environments", "Outcome", "make_environments"),
    "normalization": ("RewardNormalizer", "RunningMeanStd", "ValueNormalizer"), "policy": ("Policy",), "results": ("Results",),
    "trainer": ("Trainer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
