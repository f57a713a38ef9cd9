"""What can be told of a program that knows nothing of us, without doing anything to it."""

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch

MAX_ASKED = 3       # losses that are asked for the type they were computed in
MAX_NODES = 512     # operations behind a loss that are looked at; with autocast the first of 16 bits is among the last ones before it
_HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_HAS_CUDA = torch.backends.cuda.is_built()
_num_modes = torch._C._len_torch_dispatch_stack


class HalfWatch:
    """In which 16-bit type autocast computes the loss. backward() is mostly called where autocast is over, so its graph is asked."""

    def __init__(self) -> None:
        self.dtype = ""
        self.num_left = MAX_ASKED

    def look(self, loss: Any) -> bool:
        """Whether it is known now, and was not before."""
        if not self.num_left or not isinstance(loss, torch.Tensor):
            return False
        self.num_left -= 1
        self.dtype = _half_type(loss)
        self.num_left = 0 if self.dtype else self.num_left
        return bool(self.dtype)

    def facts(self) -> dict[str, str]:
        return {"autocast_dtype": self.dtype} if self.dtype else {}


def _half_type(loss: torch.Tensor) -> str:
    device = loss.device.type
    if torch.is_autocast_enabled(device):
        return _HALVES.get(torch.get_autocast_dtype(device), "")
    nodes: list[Any] = [loss.grad_fn] if loss.grad_fn is not None else []
    known = set(nodes)
    for node in nodes:      # grows
        for given in getattr(node, "_input_metadata", ()):      # private to torch; without it only what is in force here is known
            if given.dtype in _HALVES:
                return _HALVES[given.dtype]
        new = [behind for behind, _ in node.next_functions if behind is not None and behind not in known]
        known.update(new)
        nodes += new[: MAX_NODES - len(nodes)]
    return ""


def is_busy() -> bool:
    """Whether operations of ours would be taken for the program's: a mode of its own looks at every one, or a CUDA graph is being made."""
    if _num_modes():
        return True
    return bool(_HAS_CUDA and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


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
