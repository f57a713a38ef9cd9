"""The origin of NaN or Inf in one step that the caller can repeat."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torchtriage.capture.operations.origin import operands as of_values
from torchtriage.capture.operations.origin.trace_back import Target, trace_back
from torchtriage.capture.operations.origin.value_flow import ValueFlow
from torchtriage.recording.origins.origin import Origin, OriginState, SeenIn


def origin_of(step: Callable[[], Any], model: Any = None) -> Origin:
    """Run the step eagerly with its backward pass and follow NaN and Inf; if it is finite, run it as it is compiled.

    Random state, gradients and the buffers of `model` are as before afterwards.
    """
    import torch

    flow = ValueFlow()
    names = {} if model is None else {id(parameter): name for name, parameter in model.named_parameters()}
    with _kept(model), torch.compiler.set_stance("force_eager"), flow.mode():
        target = _target(step, names, flow)
    if target is not None:
        with torch.no_grad():
            traced = trace_back(flow, target)
        fields = {name: getattr(traced, name) for name in traced.__slots__}
        return Origin(
            seen_in=target.seen_in, subject=target.tensors[0][0], num_operations=flow.num_operations, **fields)
    with _kept(model):
        target = _target(step, names, ValueFlow())
    if target is not None:
        return Origin(
            state=OriginState.COMPILED, seen_in=target.seen_in, subject=target.tensors[0][0],
            num_operations=flow.num_operations, was_compiled=True)
    return Origin(state=OriginState.CLEAN, num_operations=flow.num_operations)


def _target(step: Callable[[], Any], names: dict[int, str], flow: ValueFlow) -> Target | None:
    """The loss if it is not finite, else the gradients that are not."""
    import torch

    loss = step()
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ValueError(f"the step must return its loss, one number in a tensor, got {found}; return loss.mean()")
    flow.is_paused = True
    try:
        if not of_values.is_finite(loss):
            return Target(seen_in=SeenIn.LOSS, tensors=[("loss", loss)])
        leaves = _leaves(loss)
        flow.is_paused = False
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True) if leaves else ()
        flow.is_paused = True
        bad = []
        for number, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
            if gradient is not None and not of_values.is_finite(gradient):
                bad.append((names.get(id(leaf), f"leaf {number} of shape {list(leaf.shape)}"), gradient))
        return Target(seen_in=SeenIn.GRADIENT, tensors=bad) if bad else None
    finally:
        flow.is_paused = False


def _leaves(loss: Any) -> list[Any]:
    """The tensors that backward() would give a gradient."""
    waiting, seen, found = [loss.grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        waiting.extend(following for following, _ in node.next_functions)
    return found


@contextlib.contextmanager
def _kept(model: Any) -> Iterator[None]:
    """Restore the random state, and the buffers that a step updates, such as the statistics of BatchNorm."""
    import torch

    before = [] if model is None else [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        with torch.no_grad():
            for buffer, values in before:
                buffer.copy_(values)
