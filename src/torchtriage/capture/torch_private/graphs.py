"""The private names of torch that a comparison of compiled graphs needs: backends, random numbers, numbered nodes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torchtriage.capture.torch_private.base import frame_callback_swap, module


def backend_function(backend: Any) -> Callable[..., Any]:
    """The function behind the name of a backend; without the registry only functions can be compared."""
    from torch._dynamo.backends.registry import lookup_backend

    function: Callable[..., Any] = lookup_backend(backend)
    return function


def compile_id() -> str:
    """The id of the compile in progress, such as "0/1"; empty where torch does not give it."""
    guards = module("torch._guards")
    try:
        found = guards.CompileContext.current_compile_id()
    except AttributeError:
        return ""
    return str(found) if found is not None else ""


def draw_as_eager() -> bool:
    """Have inductor draw random numbers as eager code does; returns whether this torch can."""
    import torch._inductor.config as config

    if not hasattr(config, "fallback_random"):
        return False
    config.fallback_random = True
    return True


@contextlib.contextmanager
def dynamo_paused() -> Iterator[None]:
    """Keep Dynamo from compiling the frames that run in this context."""
    swap = frame_callback_swap()
    callback = swap(None)
    try:
        yield
    finally:
        swap(callback)


@contextlib.contextmanager
def without_dispatch_modes() -> Iterator[None]:
    """Keep the dispatch modes of this thread from seeing the operations of a compile."""
    disable = getattr(module("torch.utils._python_dispatch"), "_disable_current_modes", contextlib.nullcontext)
    with disable():
        yield


@contextlib.contextmanager
def trace_paused() -> Iterator[None]:
    """Keep our own compiles out of the structured trace, and so out of the recording."""
    logger = getattr(module("torch._logging._internal"), "trace_log", None)
    if logger is None:
        yield
        return
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def sequence_number() -> int | None:
    """The number that autograd gives to the next operation; without it a backward operation has no source line."""
    import torch

    get = getattr(torch.autograd, "_get_sequence_nr", None)
    return int(get()) if get is not None else None


def backward_node_name() -> str:
    """The node of autograd whose backward runs now, such as SqrtBackward0; empty outside a backward pass."""
    import torch

    get = getattr(torch._C, "_current_autograd_node", None)
    node = get() if get is not None else None
    name = getattr(node, "name", None)
    return str(name()) if name is not None else ""


def backward_sequence_number() -> int | None:
    """The number of the forward operation whose backward runs now; None outside a backward pass."""
    import torch

    get = getattr(torch._C, "_current_autograd_node", None)
    node = get() if get is not None else None
    number = getattr(node, "_sequence_nr", None)
    return int(number()) if number is not None else None
