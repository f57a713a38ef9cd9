"""Lists the samples of a PPO batch whose probability ratio is out of range."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchtriage.diagnosis.learning.limits import LearningLimits

MAX_LISTED = 100
_LIMITS = LearningLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioExplosionDiagnostic:
    """The bad ratios of a batch: above the upper limit, below the lower one, or not finite.

    The first MAX_LISTED are listed.
    """

    num_ratios: int
    num_bad: int
    num_non_finite: int
    indices: tuple[int, ...]        # into the flattened batch
    values: tuple[float, ...]
    actions: tuple[Any, ...]        # a number per sample, or a tuple if actions have several parts
    log_prob_diff_mean: float | None    # of |new - old|, over finite differences; None without any
    log_prob_diff_max: float | None

    @staticmethod
    @torch.compiler.disable(  # type: ignore[untyped-decorator]
        reason="reads a batch back to the host; call it where a ratio rule fired",
    )
    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def from_batch(
        ratio: Tensor, old_log_probs: Tensor, new_log_probs: Tensor, actions: Tensor,
        max_threshold: float = _LIMITS.ratio_max, min_threshold: float = _LIMITS.ratio_min,
    ) -> "RatioExplosionDiagnostic":
        """Read a batch after a ratio rule has fired; call it outside compiled functions."""
        _check_shapes(ratio, old_log_probs, new_log_probs, actions)
        ratios_N = ratio.reshape(-1)    # N samples
        finite_N = ratios_N.isfinite()
        bad_N = ~finite_N | (ratios_N > max_threshold) | (ratios_N < min_threshold)
        listed = bad_N.nonzero().reshape(-1)[:MAX_LISTED]
        diff_N = (new_log_probs.reshape(-1).double() - old_log_probs.reshape(-1).double()).abs()
        diffs = diff_N[diff_N.isfinite()]
        rows = actions.reshape(len(ratios_N), -1)[listed].tolist() if len(listed) else []
        return RatioExplosionDiagnostic(
            num_ratios=len(ratios_N), num_bad=int(bad_N.sum()), num_non_finite=int((~finite_N).sum()),
            indices=tuple(listed.tolist()), values=tuple(ratios_N[listed].tolist()),
            actions=tuple(row[0] if len(row) == 1 else tuple(row) for row in rows),
            log_prob_diff_mean=float(diffs.mean()) if len(diffs) else None,
            log_prob_diff_max=float(diffs.max()) if len(diffs) else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN or infinity: these become text."""
        fields: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            fields[name] = list(value) if isinstance(value, tuple) else value
        fields["values"] = [value if math.isfinite(value) else str(value) for value in self.values]
        return fields


def _check_shapes(ratio: Tensor, old_log_probs: Tensor, new_log_probs: Tensor, actions: Tensor) -> None:
    for name, tensor in (("old_log_probs", old_log_probs), ("new_log_probs", new_log_probs)):
        if tensor.shape != ratio.shape:
            raise ValueError(f"{name} must have the shape of ratio, {tuple(ratio.shape)}, got {tuple(tensor.shape)}")
    if actions.shape[:ratio.dim()] != ratio.shape:
        raise ValueError(
            f"actions must begin with the shape of ratio, {tuple(ratio.shape)}, got {tuple(actions.shape)}"
        )
