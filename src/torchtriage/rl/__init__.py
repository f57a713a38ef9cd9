"""Reinforcement learning: normalizers that compile whole and resume exactly."""

from torchtriage.rl.normalization import RewardNormalizer as RewardNormalizer
from torchtriage.rl.normalization import RunningMeanStd as RunningMeanStd
from torchtriage.rl.normalization import ValueNormalizer as ValueNormalizer
