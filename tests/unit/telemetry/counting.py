"""Counts device reads, operations and allocations of a piece of code."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"cpu", "numpy", "item", "tolist", "__bool__", "__float__", "__int__", "__index__"}


class _Reads(TorchFunctionMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in READS:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


def host_reads(function: Callable[[], object]) -> list[str]:
    """The calls that would each wait for a GPU, were the tensors there."""
    with _Reads() as reads:
        function()
    return reads.names


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.num_bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        old = {tensor.untyped_storage().data_ptr() for tensor in tensors_in((args, kwargs))}
        fresh = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_in(result)}
        self.names.append(str(function))
        self.num_bytes += sum(size for pointer, size in fresh.items() if pointer not in old)
        return result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


@contextmanager
def operations() -> Iterator[_Operations]:
    with _Operations() as seen:
        yield seen


def allocated(function: Callable[[], object]) -> int:
    """Bytes of all tensors that torch makes, freed or not, and of the most that Python and numpy hold at once."""
    tracemalloc.start()
    try:
        with operations() as seen:
            function()
        return seen.num_bytes + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
