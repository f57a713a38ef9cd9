"""A snapshot of one call, from which it can be repeated: copied inputs, random state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SEED = 20_011       # of the cotangents and of the rounding noise: any fixed number


class NotComparableError(Exception):
    """A call that cannot be repeated, with the reason."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Arguments of one repetition, and per argument the leaf tensor that receives its gradient."""

    arguments: list[Any]
    leaves: list[Any]


class Snapshot:
    """The inputs of a call before it runs; inputs that share memory share it in every copy."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        import torch

        for value in arguments:
            _check(value)
        self._flags = [_gradient_kind(value) for value in arguments]
        self._masters = _copied(arguments)
        self._random_state = torch.get_rng_state()
        self._grad_mode = torch.is_grad_enabled()

    def values(self) -> list[Any]:
        """The inputs themselves, which must not be changed."""
        return self._masters

    def wants_gradient(self) -> bool:
        return self._grad_mode and any(self._flags)

    def copies(self, change: Callable[[Any], Any] = lambda value: value) -> Copies:
        """New copies, each floating-point tensor replaced by change(copy); also restores the random state."""
        import torch

        torch.set_rng_state(self._random_state)
        arguments, leaves = [], []
        for value, flag in zip(_copied(self._masters), self._flags, strict=True):
            leaf = None
            if isinstance(value, torch.Tensor):
                if value.is_floating_point():
                    value = change(value)
                if flag:
                    value = leaf = value.requires_grad_(True)
                if flag == "computed":      # the graph may write to it, which autograd forbids for a leaf
                    with torch.enable_grad():
                        value = value.clone()
            arguments.append(value)
            leaves.append(leaf)
        return Copies(arguments, leaves)


def perturbed(seed: int) -> Callable[[Any], Any]:
    """A change of each value by one unit in the last place, up or down: the smallest rounding a program can have."""
    def change(value: Any) -> Any:
        import torch

        generator = torch.Generator().manual_seed(seed + value.numel())
        signs = torch.randint(0, 2, value.shape, generator=generator).to(value) * 2 - 1
        return value * (1 + torch.finfo(value.dtype).eps * signs)

    return change


def in_float64(value: Any) -> Any:
    return value.double()


def _check(value: Any) -> None:
    import torch

    if not isinstance(value, torch.Tensor):
        return
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise NotComparableError(f"an input is a {type(value).__name__}")
    if value.layout != torch.strided or value.is_conj() or value.is_neg() or value.is_quantized:
        raise NotComparableError("an input is not a plain strided tensor")
    if value.device.type != "cpu":
        raise NotComparableError(f"an input is on {value.device.type}; only CPU tensors are compared")


def _gradient_kind(value: Any) -> str:
    """"leaf", "computed", or empty for a value without gradient."""
    if not getattr(value, "requires_grad", False):
        return ""
    return "leaf" if value.is_leaf else "computed"


def _copied(values: Sequence[Any]) -> list[Any]:
    import torch

    storages: dict[int, Any] = {}
    copies = []
    with torch.no_grad():
        for value in values:
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                key = storage._cdata
                if key not in storages:
                    storages[key] = storage.clone()
                empty = torch.empty(0, dtype=value.dtype)
                value = empty.set_(storages[key], value.storage_offset(), value.size(), value.stride())
            copies.append(value)
    return copies
