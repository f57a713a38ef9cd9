"""The private name of torch through which every operation of an eager run can be seen."""

from collections.abc import Callable
from typing import Any


def dispatch_mode(run: Callable[[Any, Any, Any], Any]) -> Any:
    """A context in which each operation of this thread is `run(operator, args, kwargs)`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped for mypy here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return run(func, args, kwargs or {})

    return Mode()
