"""The PPO loss with its metrics; rows of weight 0 (padding, dead transitions) do not count.

Shape suffixes: T steps, B sequences or rows, R = T * B rows, N environments.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from torchtriage.rl.policy.network import Evaluation
from torchtriage.rl.ppo.rollout import Minibatch

MAX_LOG_RATIO = 20.0  # exp(20) is 5e8: far outside any clipping range, and finite even when squared
# Smallest standard deviation of advantages: below it they are rounding errors, which normalization would amplify, and
# TT611 reports it.
STD_FLOOR = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """Weights of the parts of the loss; `clip_value` is how far a value may move from its old one, 0 for no limit."""

    value_coef: float = 0.5
    entropy_coef: float = 0.0
    clip_value: float = 0.0
    normalize_advantage: bool = True


def ppo_loss(
    now: Evaluation, minibatch: Minibatch, clip: Tensor, settings: LossSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of the current policy on a minibatch, and its metrics by name.

    In eager mode the time of a small minibatch depends on the number of operations. Therefore a mean is a product with
    shares, and hardtanh and mse_loss replace clamp and square, whose gradients take several operations.
    """
    weight_R, dead_R = minibatch.weight_TB.flatten(), minibatch.weight_TB.flatten() == 0
    num_rows = weight_R.sum()
    share_R = weight_R / num_rows.clamp(min=1)  # share_R @ x_R is the mean of x over live rows
    change_R = now.log_prob_TB.flatten() - minibatch.log_prob_TB.flatten()
    log_ratio_R = functional.hardtanh(change_R, -MAX_LOG_RATIO, MAX_LOG_RATIO).masked_fill(dead_R, 0.0)
    advantage_R = minibatch.advantage_TB.flatten().masked_fill(dead_R, 0.0)
    if settings.normalize_advantage:
        advantage_R = normalized(advantage_R, share_R, num_rows)
    # min(ratio * A, clamp(ratio, 1 - clip, 1 + clip) * A): only the bound on the side of A's sign can be the smaller.
    gain_R = torch.minimum(log_ratio_R.exp() * advantage_R, advantage_R + clip * advantage_R.abs())
    policy_loss = -(share_R @ gain_R)
    error_R, held_R = _squared_error(now.value_TB.flatten(), minibatch, dead_R, settings.clip_value)
    value_loss = share_R @ error_R
    entropy = share_R @ now.entropy_TB.flatten()
    loss = policy_loss + settings.value_coef * value_loss
    if settings.entropy_coef:
        loss = loss - settings.entropy_coef * entropy
    values = {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_nats": entropy,
        "rows": num_rows,
    }
    with torch.no_grad():
        values["value_clip_fraction"] = num_rows.new_zeros(()) if held_R is None else share_R @ held_R.to(share_R.dtype)
        return loss, values | _ratio_metrics(log_ratio_R, share_R, dead_R, clip)


def _ratio_metrics(log_ratio_R: Tensor, share_R: Tensor, dead_R: Tensor, clip: Tensor) -> dict[str, Tensor]:
    # ratio - 1 without cancellation: in float32, exp(l) - 1 - l is a rounding error where KL is small.
    excess_R = log_ratio_R.expm1()
    distance_R = excess_R.abs()
    return {
        "kl": share_R @ (excess_R - log_ratio_R),
        "clip_fraction": share_R @ (distance_R > clip).to(share_R.dtype),
        "ratio_max": excess_R.masked_fill(dead_R, -torch.inf).amax() + 1,
        "ratio_min": excess_R.masked_fill(dead_R, torch.inf).amin() + 1,
        "first_ratio_deviation": distance_R.amax(),
    }


def _squared_error(
    value_R: Tensor, minibatch: Minibatch, dead_R: Tensor, clip_value: float
) -> tuple[Tensor, Tensor | None]:
    """(squared error of the critic, rows at which the clip applies).

    With a clip, the error is the larger of the unclipped error and that of the value clipped around its old value, as
    in the original PPO. Where the latter is larger, it does not depend on the value, so the critic learns nothing.
    """
    return_R = minibatch.return_TB.flatten().masked_fill(dead_R, 0.0)
    error_R = functional.mse_loss(value_R, return_R, reduction="none")
    if not clip_value:
        return error_R, None
    old_R = minibatch.value_TB.flatten().masked_fill(dead_R, 0.0)
    change_R = value_R - old_R
    near_R = old_R + functional.hardtanh(change_R, -clip_value, clip_value)
    near_error_R = functional.mse_loss(near_R, return_R, reduction="none")
    with torch.no_grad():  # within the clip both errors are equal except for rounding, and both have a gradient
        held_R = (change_R.abs() > clip_value) & (near_error_R > error_R)
    return torch.maximum(error_R, near_error_R), held_R


def normalized(advantage_R: Tensor, share_R: Tensor, num_rows: Tensor) -> Tensor:
    """Advantages minus their mean, divided by the sample standard deviation of live rows (at least STD_FLOOR)."""
    centred_R = advantage_R - share_R @ advantage_R
    sample = num_rows / (num_rows - 1).clamp(min=1)
    return centred_R / (share_R @ centred_R.square() * sample).sqrt().clamp(min=STD_FLOOR)


def rollout_metrics(
    value_TN: Tensor, return_TN: Tensor, advantage_TN: Tensor, error_TN: Tensor, live_TN: Tensor
) -> dict[str, Tensor]:
    """Explained variance, standard deviations of returns and advantages, and mean absolute Bellman error.

    All are over live transitions. Explained variance says how well the values before an update explain the returns;
    it is NaN where the returns do not vary, since there is nothing to explain.
    """
    # In float64, equal returns have a variance of exactly 0.
    dtype = torch.float32 if value_TN.device.type == "mps" else torch.float64
    rows_3R = torch.stack([return_TN - value_TN, return_TN, advantage_TN]).flatten(1).to(dtype)
    dead_R = ~live_TN.flatten()
    count = live_TN.sum().clamp(min=1)
    mean_31 = rows_3R.masked_fill(dead_R, 0.0).sum(1, keepdim=True) / count
    residual, returns, advantages = ((rows_3R - mean_31).masked_fill(dead_R, 0.0).square().sum(1) / count).unbind()
    explained = torch.where(returns > 0, 1 - residual / returns, torch.nan)
    return {
        "explained_variance": explained,
        "returns_std": returns.sqrt(),
        "advantage_std": advantages.sqrt(),
        "bellman_error": error_TN.masked_fill(~live_TN, 0.0).abs().sum().to(dtype) / count,
    }
