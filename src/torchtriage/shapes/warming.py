"""Runs a compiled function once in each mode that it will be called in, so that everything is compiled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.shapes.compiles import Compiles
from torchtriage.shapes.padding import RESULT, tensors_in
from torchtriage.shapes.side_effects import copied, leaves_behind, untouched


def warm_up(plain: Callable[..., Any], compiled: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The compile seconds of a call; with its backward, and once more without gradients, if the result has any.

    Runs on copies of the arguments; the buffers of the modules of `plain` and the random numbers are put back, no gradient is left behind.
    """
    import torch

    def call() -> list[Any]:
        own_args, own_kwargs = copied(args, kwargs)
        return [t for _, t in tensors_in(compiled(*own_args, **own_kwargs), RESULT) if t.requires_grad]

    with Compiles() as seen, untouched(plain):
        outputs = call()
        if outputs:
            torch.autograd.grad(outputs, leaves_behind(outputs), [torch.ones_like(t) for t in outputs], allow_unused=True)
            with torch.no_grad():
                call()
    return seen.seconds
