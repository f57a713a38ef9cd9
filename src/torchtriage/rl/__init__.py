"""Reinforcement learning: PPO whose update compiles to one graph, observed by telemetry, resumed exactly.

Public names load on first use: all but the settings import torch.
"""

from typing import TYPE_CHECKING

from torchtriage.lazy import lazy_names

if TYPE_CHECKING:
    from torchtriage.rl.config import TrainConfig as TrainConfig
    from torchtriage.rl.config import resolved as resolved
    from torchtriage.rl.envs.protocol import Environments as Environments
    from torchtriage.rl.envs.protocol import Outcome as Outcome
    from torchtriage.rl.envs.protocol import make_environments as make_environments
    from torchtriage.rl.normalize.normalizers import RewardNormalizer as RewardNormalizer
    from torchtriage.rl.normalize.normalizers import RunningMeanStd as RunningMeanStd
    from torchtriage.rl.normalize.normalizers import ValueNormalizer as ValueNormalizer
    from torchtriage.rl.policy.policy import Policy as Policy
    from torchtriage.rl.results import Results as Results
    from torchtriage.rl.trainer import Trainer as Trainer

_HOMES = {
    "config": ("TrainConfig", "resolved"),
    "envs.protocol": ("Environments", "Outcome", "make_environments"),
    "normalize.normalizers": ("RewardNormalizer", "RunningMeanStd", "ValueNormalizer"),
    "policy.policy": ("Policy",),
    "results": ("Results",),
    "trainer": ("Trainer",),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
