"""What can be told of a program that knows nothing of us, without doing anything to it."""

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def is_busy() -> bool:
    """Whether operations of ours would be taken for the program's: a mode of its own looks at every one, or a CUDA graph is being made."""
    if torch._C._len_torch_dispatch_stack():
        return True
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def listed_parameters(parameters: Any) -> list[torch.Tensor] | None:
    """The parameters that clipping was given; None where only it may look: a generator is its own to consume (a module's is known)."""
    if isinstance(parameters, torch.Tensor):
        return [parameters]
    if isinstance(parameters, types.GeneratorType):
        frame = parameters.gi_frame
        if frame is None or parameters.gi_code is not torch.nn.Module.parameters.__code__:
            return None
        return list(frame.f_locals["self"].parameters(frame.f_locals["recurse"]))
    return list(parameters) if isinstance(parameters, Sequence | set | frozenset | Mapping) else None


def parameter_groups(optimizer: torch.optim.Optimizer, label: str) -> dict[str, list[torch.Tensor]]:
    """The optimizer's parameter groups, by name or number; one alone is `all`."""
    groups = optimizer.param_groups
    prefix = f"{label} " if label else ""
    if len(groups) == 1:
        return {label or "all": groups[0]["params"]}
    return {f"{prefix}{group.get('name') or number}": group["params"] for number, group in enumerate(groups)}


def learning_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """One a parameter group; a rate on a device is not read."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    return [float(rate) for rate in rates if isinstance(rate, int | float) or (isinstance(rate, torch.Tensor) and rate.is_cpu)]
