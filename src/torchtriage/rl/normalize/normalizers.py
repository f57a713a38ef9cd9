"""Normalizers of observations, rewards or values, which work inside a full-graph compiled region."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from numbers import Real
from typing import Any, overload

import torch
import torch.distributed as dist
from torch import Tensor

from torchtriage.rl.normalize.moments import Moments, averaged, merged, without
from torchtriage.rl.normalize.running_moments import RunningMoments

CLIP = 10.0


class RunningMeanStd(RunningMoments):
    """Normalizes by the mean and standard deviation of all samples (Welford), or, with a momentum, of the recent ones.

    It starts from mean 0 and variance 1 with the weight of `epsilon` samples; with a momentum this start fades as
    momentum**updates.
    """

    SETTINGS = ("frozen", "epsilon", "momentum")

    merged_mean: Tensor
    merged_var: Tensor
    merged_count: Tensor

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        epsilon: float = 1e-4,
        device: Any = None,
        momentum: float | None = None,
        strict_device: bool = False,
    ) -> None:
        if not epsilon > 0:
            raise ValueError(
                f"epsilon must be above 0, got {epsilon}; it prevents a division by zero for a constant feature"
            )
        _check_momentum(momentum)
        super().__init__(shape, (epsilon, 0.0, 1.0), device, strict_device)
        self.epsilon, self.momentum = epsilon, momentum
        # The statistics at the last merge across ranks, so that the next merge counts no sample twice.
        for name in ("mean", "var", "count"):
            self.register_buffer(f"merged_{name}", getattr(self, name).clone())

    def normalize(self, x: Tensor, clip: float = CLIP) -> Tensor:
        """`x` minus the mean, divided by the standard deviation, clamped to +-clip. NaN stays NaN."""
        self._check_input(x)
        return self._like(x, ((x - self.mean) / (self.var + self.epsilon).sqrt()).clamp(-clip, clip))

    def merge(self, other: RunningMeanStd) -> None:
        """Add the samples of another one, such as a worker's, as if this one had received them.

        `other` does not change.
        """
        if (other.shape, other.momentum) != (self.shape, self.momentum):
            raise ValueError(
                f"expected statistics of shape {self.shape} and momentum {self.momentum}, "
                f"got {other.shape} and {other.momentum}; merge only normalizers with equal settings"
            )
        if self.frozen:
            return
        theirs = Moments(*(t.to(self.mean.device) for t in other._since(other._prior())))
        self._pool(self._prior(), [self._since(self._prior()), theirs])
        self.num_rejected.add_(other.num_rejected.to(self.mean.device))

    def merge_across_ranks(self, process_group: Any = None) -> None:
        """Combine the samples of all ranks in one packed all-reduce; call it on every rank, as often as you like.

        Each rank fills its own row of a table, since summed squares would lose the variance if the mean is much
        larger. Every rank folds the same rows in the same order, so the results are bitwise equal. `num_rejected` is
        not combined. A single process may call it, too.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return
        base = Moments(self.merged_count, self.merged_mean, self.merged_var)
        news = torch.cat([part.reshape(-1) for part in self._since(base)])
        rows_RM = news.new_zeros(dist.get_world_size(process_group), news.numel())  # R ranks, M moments
        rows_RM[dist.get_rank(process_group)] = news
        dist.all_reduce(rows_RM, group=process_group)
        self._pool(base, [self._unpacked(row_M) for row_M in rows_RM])
        self.merged_count.copy_(self.count)
        self.merged_mean.copy_(self.mean)
        self.merged_var.copy_(self.var)

    def _after(self, batch: Moments) -> Moments:
        return merged(self._moments, batch) if self.momentum is None else averaged(self._moments, batch, self.momentum)

    def _prior(self) -> Moments:
        return Moments(
            torch.full_like(self.count, self.epsilon), torch.zeros_like(self.mean), torch.ones_like(self.var)
        )

    def _since(self, base: Moments) -> Moments:
        """The moments of the samples since `base`.

        An average with momentum cannot be separated: the current average represents them, weighted by their number.
        """
        if self.momentum is None:
            return without(self._moments, base)
        return Moments(self.count - base.count, self.mean, self.var)

    def _pool(self, base: Moments, parts: Sequence[Moments]) -> None:
        """Store `base` and the parts since then.

        For averages this is exact if each part is one update, as when every rollout is merged.
        """
        update = functools.reduce(merged, parts)
        if self.momentum is None:
            self._store(merged(base, update))
            return
        has_samples = update.count > 0
        mean = torch.where(has_samples, update.mean, base.mean)
        var = torch.where(has_samples, update.var, base.var)
        self._store(Moments(base.count + update.count, mean, var))

    def _unpacked(self, row_M: Tensor) -> Moments:
        count, mean, var = row_M.split([1, self.mean.numel(), self.mean.numel()])
        return Moments(count, mean.view_as(self.mean), var.view_as(self.var))


class RewardNormalizer(RunningMoments):
    """Divides rewards by the sample standard deviation of all so far and clamps them to +-clip.

    The mean is not subtracted, so the sign stays. With fewer than two samples, or while all are equal, there is no
    scale, and rewards are only clamped. A tensor of the rewards of all environments costs as much as a single number.
    """

    SETTINGS = ("frozen", "clip", "epsilon")

    def __init__(
        self, clip: float = CLIP, epsilon: float = 1e-8, device: Any = None, strict_device: bool = False
    ) -> None:
        if not (clip > 0 and epsilon > 0):
            raise ValueError(f"clip and epsilon must be above 0, got {clip} and {epsilon}")
        super().__init__((), (0.0, 0.0, 0.0), device, strict_device)
        self.clip, self.epsilon = clip, epsilon

    @overload
    def normalize(self, reward: float) -> float: ...
    @overload
    def normalize(self, reward: Tensor) -> Tensor: ...
    def normalize(self, reward: float | Tensor) -> float | Tensor:
        """Normalize one reward or a tensor of them; NaN stays NaN."""
        if isinstance(reward, Real):
            return float(self.normalize(self._tensor(reward)))
        self._check_input(reward)
        sample_var = self.var * self.count / (self.count - 1).clamp(min=1)  # 0 below two samples
        return self._like(reward, (reward / _scale(sample_var, self.epsilon)).clamp(-self.clip, self.clip))

    @overload
    def update_and_normalize(self, reward: float) -> float: ...
    @overload
    def update_and_normalize(self, reward: Tensor) -> Tensor: ...
    def update_and_normalize(self, reward: float | Tensor) -> float | Tensor:
        """Add rewards to the statistics, then normalize them."""
        self.update(self._tensor(reward) if isinstance(reward, Real) else reward)
        return self.normalize(reward)

    def _after(self, batch: Moments) -> Moments:
        return merged(self._moments, batch)

    def _tensor(self, reward: Real) -> Tensor:
        return torch.tensor(reward, dtype=self.mean.dtype, device=self.mean.device)


class ValueNormalizer(RunningMoments):
    """Divides value targets by their standard deviation and multiplies predictions back; the mean is not shifted.

    For the first `warmup` samples all have equal weight and the scale is 1; after that an average with momentum
    follows the recent samples.
    """

    SETTINGS = ("frozen", "momentum", "epsilon", "warmup")

    def __init__(
        self,
        momentum: float = 0.99,
        epsilon: float = 1e-8,
        warmup: int = 32,
        device: Any = None,
        strict_device: bool = False,
    ) -> None:
        _check_momentum(momentum)
        if not (warmup >= 1 and epsilon > 0):
            raise ValueError(f"warmup must be at least 1 and epsilon above 0, got {warmup} and {epsilon}")
        super().__init__((), (0.0, 0.0, 0.0), device, strict_device)
        self.momentum, self.epsilon, self.warmup = momentum, epsilon, warmup

    @property
    def scale(self) -> Tensor:
        """The divisor of values."""
        return torch.where(self.count >= self.warmup, _scale(self.var, self.epsilon), 1)

    def normalize(self, values: Tensor) -> Tensor:
        self._check_input(values)
        return self._like(values, values / self.scale)

    def denormalize(self, values: Tensor) -> Tensor:
        """Undo `normalize`; exact if there was no update in between."""
        self._check_input(values)
        return self._like(values, values * self.scale)

    def _after(self, batch: Moments) -> Moments:
        warm, early = averaged(self._moments, batch, self.momentum), merged(self._moments, batch)
        return Moments(*(torch.where(self.count < self.warmup, a, b) for a, b in zip(early, warm, strict=True)))


def _scale(var: Tensor, epsilon: float) -> Tensor:
    """The standard deviation; 1 where it is almost 0, as for equal values, which it would amplify."""
    std = var.sqrt()
    return torch.where(std > epsilon, std, 1)


def _check_momentum(momentum: float | None) -> None:
    if momentum is not None and not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in [0, 1), got {momentum}; None weights all samples equally")
