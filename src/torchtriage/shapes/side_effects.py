"""Runs a user's function for our own sake without leaving a trace of it: copies of its arguments, its buffers put back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.shapes.padding import map_tensors


def copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Copies of the tensor arguments; a tensor that is given twice stays one, since torch.compile tells that from two."""
    copies: dict[int, Any] = {}

    def copy(_: str, tensor: Any) -> Any:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    return [map_tensors(value, "", copy) for value in args], {name: map_tensors(value, "", copy) for name, value in kwargs.items()}


def modules_of(function: Callable[..., Any]) -> list[Any]:
    """The modules that a function is, belongs to, closes over or names as a global."""
    import torch

    code, closure = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    named = [getattr(function, "__globals__", {}).get(name) for name in getattr(code, "co_names", ())]
    found = [function, getattr(function, "__self__", None), *(cell.cell_contents for cell in closure), *named]
    return [module for module in found if isinstance(module, torch.nn.Module)]


class untouched:  # noqa: N801 - used as a statement
    """`with untouched(function):` puts the buffers of its modules (a batch norm's running mean) and the random numbers back afterwards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import torch

        self._buffers = [(buffer, buffer.detach().clone()) for module in modules_of(function) for buffer in module.buffers()]
        self._random = torch.random.fork_rng()

    def __enter__(self) -> None:
        self._random.__enter__()

    def __exit__(self, *error: Any) -> None:
        import torch

        self._random.__exit__(*error)
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)


def leaves_behind(outputs: Sequence[Any]) -> list[Any]:
    """The tensors that backward() would leave a gradient in, in the order in which the graph reaches them."""
    leaves, seen = [], set()
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        todo += [parent for parent, _ in node.next_functions]
    return leaves
