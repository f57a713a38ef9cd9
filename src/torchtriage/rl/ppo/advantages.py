"""Generalized advantage estimation over a rollout in which episodes terminate, are truncated, or skip a step."""

from typing import NamedTuple

import torch
from torch import Tensor

# T steps, N environments.


class Estimates(NamedTuple):
    """Estimates per transition; `error_TN` is the Bellman error, reward plus discounted next value minus value."""

    advantage_TN: Tensor
    return_TN: Tensor
    error_TN: Tensor


def gae(
    reward_TN: Tensor,
    value_TN: Tensor,
    final_value_TN: Tensor,
    terminated_TN: Tensor,
    truncated_TN: Tensor,
    live_TN: Tensor,
    last_value_N: Tensor,
    gamma: float,
    lam: float,
) -> Estimates:
    """Advantages, returns and Bellman errors.

    The next value is 0 after a terminated transition, that of the final observation after a truncated one
    (`final_value_TN`, read only there), and `last_value_N` after the last row. A transition that is not live
    contributes nothing: its advantage and error are 0, and its return is its own value.
    """
    ended_TN = terminated_TN | truncated_TN
    next_value_TN = torch.cat([value_TN[1:], last_value_N[None]])
    # torch.where instead of a product: a masked value may be NaN, and NaN times 0 is NaN.
    next_value_TN = torch.where(truncated_TN, final_value_TN, next_value_TN).masked_fill(terminated_TN, 0)
    error_TN = (reward_TN + gamma * next_value_TN - value_TN).masked_fill(~live_TN, 0)
    carry_TN = torch.full_like(error_TN, gamma * lam).masked_fill(ended_TN | ~live_TN, 0)
    advantage_TN = _discounted_sums(error_TN, carry_TN)
    return Estimates(advantage_TN, advantage_TN + value_TN, error_TN)


def _discounted_sums(x_TN: Tensor, carry_TN: Tensor) -> Tensor:
    """y with y[t] = x[t] + carry[t] * y[t + 1], by doubling: log2(T) rounds over the entire tensor instead of T steps.

    After a round with reach r, y[t] sums x[t .. t+2r-1], and carry[t] is the weight of the sum from t+2r on.
    """
    reach, num_steps = 1, x_TN.shape[0]
    while reach < num_steps:
        head_TN, tail_TN = carry_TN[:-reach], carry_TN[reach:]
        x_TN = torch.cat([torch.addcmul(x_TN[:-reach], head_TN, x_TN[reach:]), x_TN[-reach:]])
        carry_TN = torch.cat([head_TN * tail_TN, torch.zeros_like(carry_TN[-reach:])])
        reach *= 2
    return x_TN
