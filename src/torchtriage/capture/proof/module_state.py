"""The modules of a process: their state beside the weights, which of them is running, and what is saved."""

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

MAX_ELEMENTS = 50_000_000   # of all of them together: each row computes their norms


class ModuleState:
    """Searches the modules of the process when an optimizer makes its first step."""

    def __init__(self) -> None:
        self._weights: set[int] = set()                     # ids of the parameters of all optimizers
        self._optimizers: set[int] = set()
        self._holders: dict[str, weakref.ref[Any]] = {}     # name -> a module that holds tensors itself

    def tensors(self, optimizer: int, weights: Sequence[Any]) -> dict[str, Any]:
        """By the name of the module and the tensor, without the weights of optimizers."""
        import torch

        self._weights |= {id(weight) for weight in weights}
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._search()
        found: dict[str, Any] = {}
        num_elements = 0
        for name, holder in self._holders.items():
            module = holder()
            for key, tensor in {**module._buffers, **module._parameters}.items() if module is not None else ():
                if isinstance(tensor, torch.Tensor) and id(tensor) not in self._weights and not tensor.is_meta:
                    num_elements += tensor.numel()
                    if num_elements > MAX_ELEMENTS:
                        return found
                    found[f"{name}.{key}"] = tensor
        return found

    def _search(self) -> None:
        holders = [(name, module) for name, module in named_modules() if module._buffers or module._parameters]
        self._holders = {name: weakref.ref(module) for name, module in holders}


def named_modules() -> list[tuple[str, Any]]:
    """All modules of the process, by the class of their outermost module and their path in it."""
    import torch

    from torchtriage.telemetry.sampling.parameters import clean, modules_of_process, unique

    modules = [
        module for module in modules_of_process()
        if not isinstance(module, torch.fx.GraphModule) and "_orig_mod" not in module._modules
    ]
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    roots = [module for module in modules if id(module) not in inner]
    pairs = [
        (f"{type(root).__name__}.{clean(name)}".rstrip("."), module) for root in roots
        for name, module in root.named_modules()
    ]
    names = unique(name for name, _ in pairs)
    return [(name, module) for name, (_, module) in zip(names, pairs, strict=True)]


class RunningModule:
    """The name of the module whose method is running."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self) -> str:
        """Of the innermost one; empty outside of all modules."""
        import torch

        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, torch.nn.Module) and not isinstance(owner, torch.fx.GraphModule):
                if id(owner) not in self._names:
                    self._names = {id(module): name for name, module in named_modules()}
                return self._names.setdefault(id(owner), "")
            frame = frame.f_back
        return ""


def tensors_in(obj: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of an object that torch.save writes, by their path in it: of dicts, sequences and modules."""
    import torch

    from torchtriage.telemetry.sampling.parameters import clean

    if isinstance(obj, torch.nn.Module):
        obj = obj.state_dict()
    if isinstance(obj, torch.Tensor):
        if not obj.is_meta and not obj.is_quantized:
            yield clean(name) or "tensor", obj
        return
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(obj, Mapping):
        inner = obj.items()
    elif isinstance(obj, list | tuple):
        inner = enumerate(obj)
    for key, value in inner:
        yield from tensors_in(value, f"{name}.{key}" if name else str(key))
