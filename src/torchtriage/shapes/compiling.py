"""How the calls of this folder compile a function: one region a bucket or policy, and the function behind one that is compiled already."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torchtriage.capture import torch_private
from torchtriage.errors import TriageError


def uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.compile was given, or `fn` itself."""
    return torch_private.compiled_from(fn) or fn


def name_of(fn: Callable[..., Any]) -> str:
    """Of a function, or of the class of a module."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def bucket_compiler(fn: Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], Callable[..., Any]]:
    """Makes the callable of one more bucket.

    Buckets of one function share its code, so together they reach torch's recompile limit and the rest would run eager without a word:
    each is a region of its own where torch has such (2.13), else it has a frame of its own around the function.
    """
    import torch

    if "dynamic" in options:
        raise TriageError(f"dynamic={options['dynamic']!r} was given, but every bucket is one fixed size; leave it out")
    if uncompiled(fn) is not fn or hasattr(fn, "bucket_of"):
        if options:
            raise TriageError(f"{', '.join(options)} was given for a function that is compiled already; "
                              "give the function as it was before torch.compile")
        return lambda: fn
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        return lambda: torch.compile(fn, dynamic=False, isolate_recompiles=True, **options)
    return lambda: torch.compile(_with_own_frame(fn), dynamic=False, **options)


def _with_own_frame(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function in a frame whose code is no other's: Dynamo keeps what it compiled, and counts it, by the code object."""
    def bucket(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    bucket.__code__ = bucket.__code__.replace()
    return bucket


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """The names of what can be given by position; a builtin may not tell, and is named by position then."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except ValueError:
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
