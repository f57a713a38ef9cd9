"""Reinforcement learning: PPO compiled whole and watched whole, with normalizers that compile whole and resume exactly.

Public names load on first use: all but the settings import torch.
"""

from typing import TYPE_CHECKING

from torchtriage.lazily import lazy_names

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
__all__, __getattr__ = lazy_names(__name__, _HOMES)
