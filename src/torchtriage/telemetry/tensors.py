"""Which tensors have statistics, and how their memory lies."""

import sys
from typing import Any, TypeGuard

import torch


def is_dtensor(tensor: object) -> TypeGuard[Any]:
    distributed = sys.modules.get("torch.distributed.tensor")       # not loaded here: it takes long, and without it there is no DTensor
    return distributed is not None and isinstance(tensor, getattr(distributed, "DTensor", ()))


def why_refused(tensor: torch.Tensor) -> str:
    """"" if the tensor has statistics; else what it is and what to give instead."""
    if is_dtensor(tensor):
        return "is a DTensor, of which this process holds a part; to_local() gives it, Monitor tells of the whole"
    if tensor.layout != torch.strided:
        return f"has layout {tensor.layout}; give tensor.coalesce().values(), or tensor.to_dense()"
    if tensor.is_complex():
        return f"has dtype {tensor.dtype}; give torch.view_as_real(tensor)"
    if tensor.is_quantized or not tensor.is_floating_point():
        return f"has dtype {tensor.dtype}; statistics are of floating-point tensors"
    if tensor.is_meta:
        return "has no data (a meta tensor); give it data first, with module.to_empty() for instance"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"is a {type(tensor).__name__}, whose elements only its own operations know; give a plain tensor"
    return ""


def why_no_number(value: object) -> str:
    """"" if it is a number or a tensor of one element; else what it is and what to give instead."""
    if isinstance(value, torch.Tensor):
        is_one = value.numel() == 1 and not value.is_complex()
        return "" if is_one else f"is a tensor of {value.dtype} of shape {tuple(value.shape)}; give its mean, or an element"
    is_number = hasattr(value, "__float__") or hasattr(value, "__index__")
    return "" if is_number else f"is a {type(value).__name__}; give a number, or a tensor of one element"


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory, in whatever order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
