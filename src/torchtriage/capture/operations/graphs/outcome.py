"""Everything that one call of a graph changes: outputs, mutated inputs, gradients."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torchtriage.capture.operations.graphs.graph_walk import grad_mode_kept
from torchtriage.capture.operations.graphs.snapshot import SEED, Snapshot
from torchtriage.capture.torch_private.graphs import dynamo_paused

FORWARD, WRITE, GRADIENT = "output", "written input", "gradient"


@dataclass(frozen=True, slots=True)
class GraphValue:
    """One tensor that a call leaves: its kind, its number within the kind, the tensor or None."""

    kind: str
    index: int
    tensor: Any


def outcome(
    function: Callable[..., Any], snapshot: Snapshot, change: Callable[[Any], Any] = lambda value: value,
    with_gradients: bool = True,
) -> list[GraphValue]:
    """Call the function on copies of the inputs; gradients are those of fixed cotangents, the same for every call."""
    import torch

    copies = snapshot.copies(change)
    with dynamo_paused():
        with grad_mode_kept():
            outputs = list(tensors(function(*copies.arguments)))
        values = [GraphValue(FORWARD, index, tensor.detach()) for index, tensor in enumerate(outputs)]
        for index, value in enumerate(copies.arguments):
            if isinstance(value, torch.Tensor):
                values.append(GraphValue(WRITE, index, value.detach().clone()))
        if with_gradients and snapshot.wants_gradient():
            values.extend(_gradients(outputs, copies.leaves))
    return values


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in nested tuples, lists and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


def _gradients(outputs: list[Any], leaves: list[Any]) -> Iterator[GraphValue]:
    import torch

    reached = [tensor for tensor in outputs if tensor.requires_grad and tensor.is_floating_point()]
    wanted = [(index, leaf) for index, leaf in enumerate(leaves) if leaf is not None]
    if not reached or not wanted:
        return
    generator = torch.Generator().manual_seed(SEED)
    cotangents = []
    for tensor in reached:
        cotangent = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        cotangents.append(cotangent.to(tensor.dtype))
    gradients = torch.autograd.grad(reached, [leaf for _, leaf in wanted], cotangents, allow_unused=True)
    for (index, _), gradient in zip(wanted, gradients, strict=True):
        yield GraphValue(GRADIENT, index, None if gradient is None else gradient.detach())
