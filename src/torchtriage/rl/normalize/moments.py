"""Arithmetic of moments (count, mean, population variance) without data-dependent control flow.

So a function that uses it compiles to one graph.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Shape suffixes: N samples, F features.


class Moments(NamedTuple):
    """Moments of some samples: `count` is one number, `mean` and `var` have the shape of a sample."""

    count: Tensor
    mean: Tensor
    var: Tensor


def of_rows(rows_NF: Tensor, keep_N: Tensor) -> Moments:
    """The moments of the rows to keep, in two passes: one pass loses the variance if the mean is much larger."""
    keep_N1 = keep_N.unsqueeze(1)
    count = keep_N.sum().to(rows_NF.dtype)
    divisor = count.clamp(min=1)  # without a row: zeros
    mean_F = torch.where(keep_N1, rows_NF, 0).sum(0) / divisor
    var_F = torch.where(keep_N1, rows_NF - mean_F, 0).square().sum(0) / divisor
    return Moments(count, mean_F, var_F)


def mixed(a: Moments, b: Moments, share: Tensor) -> Moments:
    """A mixture in which `b` has this share: Welford's merge and an exponential average differ only in the share."""
    delta = b.mean - a.mean
    var = (1 - share) * a.var + share * b.var + share * (1 - share) * delta.square()
    return Moments(a.count + b.count, a.mean + share * delta, var)


def merged(a: Moments, b: Moments) -> Moments:
    """The moments of the samples of both."""
    return mixed(a, b, b.count / _not_zero(a.count + b.count))


def averaged(a: Moments, b: Moments, momentum: float) -> Moments:
    """`a` after one step of an exponential average towards `b`; unchanged if `b` has no sample."""
    return mixed(a, b, (1 - momentum) * (b.count > 0).to(b.count.dtype))


def without(total: Moments, part: Moments) -> Moments:
    """The moments of the samples of `total` that are not in `part`: undoes `merged(part, rest)`."""
    count = total.count - part.count
    share = _not_zero(count / _not_zero(total.count))
    delta = (total.mean - part.mean) / share
    var = (total.var - (1 - share) * part.var) / share - (1 - share) * delta.square()
    return Moments(count, part.mean + delta, var.clamp(min=0))  # rounding may leave it a little below zero


def _not_zero(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1, x)
