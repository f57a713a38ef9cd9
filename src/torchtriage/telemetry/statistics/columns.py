"""The columns of a statistics table.   P tensors, S statistics."""

import enum
import math
import sys
from typing import Any, TypeGuard

import numpy as np
import torch


class Stat(enum.IntEnum):
    """The columns of a statistics table, as indices of its last dimension.

    NORM to MAX_ABS describe the finite elements and are 0 if there are none; STD is that of the population. The
    counts cover all elements.
    """

    NORM = 0
    MEAN = 1
    STD = 2
    MIN = 3
    MAX = 4
    MAX_ABS = 5
    NUM_NAN = 6
    NUM_INF = 7
    NUM_ZERO = 8
    NUM_SMALL = 9       # |x| < small, zeros included
    NUM_LARGE = 10      # |x| > large, infinities included
    NUM_ELEMENTS = 11


NUM_STATS = len(Stat)
SMALL, LARGE = 1e-6, 10.0      # default limits of NUM_SMALL and NUM_LARGE, those of collect_per_layer_gradients
_COUNTS = slice(Stat.NUM_NAN, Stat.NUM_ELEMENTS + 1)


def true_norm(row: Any) -> float:
    """The norm as clip_grad_norm_ computes it: NaN if the tensor contains a NaN, inf if it contains an infinity, else
    NORM.
    """
    if row[Stat.NUM_NAN]:
        return math.nan
    return math.inf if row[Stat.NUM_INF] else float(row[Stat.NORM])


def total(rows_PS: Any) -> Any:
    """Merge the rows of a group of tensors, as if they were one tensor."""
    rows_PS = np.asarray(rows_PS, dtype=np.float64).reshape(-1, NUM_STATS)
    merged_S = np.zeros(NUM_STATS)
    merged_S[_COUNTS] = rows_PS[:, _COUNTS].sum(axis=0)
    num_finite_P = rows_PS[:, Stat.NUM_ELEMENTS] - rows_PS[:, Stat.NUM_NAN] - rows_PS[:, Stat.NUM_INF]
    rows_PS, num_finite_P = rows_PS[num_finite_P > 0], num_finite_P[num_finite_P > 0]
    if not len(rows_PS):
        return merged_S
    merged_S[Stat.MIN] = rows_PS[:, Stat.MIN].min()
    merged_S[Stat.MAX] = rows_PS[:, Stat.MAX].max()
    merged_S[Stat.MAX_ABS] = scale = rows_PS[:, Stat.MAX_ABS].max()
    if not scale:
        return merged_S
    # Squares of values near the limits of a double must neither overflow nor underflow.
    norm_P, mean_P, std_P = (rows_PS[:, column] / scale for column in (Stat.NORM, Stat.MEAN, Stat.STD))
    share_P = num_finite_P / num_finite_P.sum()
    mean = (share_P * mean_P).sum()
    merged_S[Stat.NORM] = scale * math.sqrt((norm_P**2).sum())
    merged_S[Stat.MEAN] = scale * mean
    merged_S[Stat.STD] = scale * math.sqrt((share_P * (std_P**2 + (mean_P - mean) ** 2)).sum())
    return merged_S


def is_dtensor(tensor: object) -> TypeGuard[Any]:
    # Not imported here: that is slow, and unless the program has imported it there is no DTensor.
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(tensor, getattr(distributed, "DTensor", ()))


def why_refused(tensor: torch.Tensor) -> str:
    """Why the tensor has no statistics and what to give instead; "" if it has."""
    if is_dtensor(tensor):
        return "is a DTensor, of which this process holds a part; give to_local(), or use Monitor for the full tensor"
    if tensor.layout != torch.strided:
        return f"has layout {tensor.layout}; give tensor.coalesce().values(), or tensor.to_dense()"
    if tensor.is_complex():
        return f"has dtype {tensor.dtype}; give torch.view_as_real(tensor)"
    if tensor.is_quantized or not tensor.is_floating_point():
        return f"has dtype {tensor.dtype}; only floating-point tensors have statistics"
    if tensor.is_meta:
        return "has no data (a meta tensor); allocate it first, for instance with module.to_empty()"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"is a {type(tensor).__name__}, whose elements only its own operations can read; give a plain tensor"
    return ""


def why_no_number(value: object) -> str:
    """Why the value is not a number and what to give instead; "" if it is a number or a tensor with one element."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1 and not value.is_complex():
            return ""
        return f"is a {value.dtype} tensor of shape {tuple(value.shape)}; give its mean, or an element"
    if hasattr(value, "__float__") or hasattr(value, "__index__"):
        return ""
    return f"is a {type(value).__name__}; give a number, or a tensor with one element"


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory, in any order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
