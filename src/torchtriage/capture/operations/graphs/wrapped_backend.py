"""A backend around the program's own, which decides what is called in place of each compiled graph."""

from collections.abc import Callable, Sequence
from typing import Any

from torchtriage.capture.operations.graphs.prefix import copied
from torchtriage.capture.torch_private.graphs import backend_function, without_dispatch_modes

Function = Callable[..., Any]
# (the graph before the backend saw it, what the backend made of it, the backend) -> what is called
Wrap = Callable[[Any, Function, "WrappedBackend"], Function]


class WrappedBackend:
    """Compiles as the program's backend does; two are equal if the backends are, as Dynamo asks."""

    def __init__(self, backend: Any, wrap: Wrap) -> None:
        self.original, self._wrap = backend_function(backend), wrap
        self.compiler_name = str(backend) if isinstance(backend, str) else _name(backend)
        # Copied one by one: Dynamo looks for attributes while it evaluates frames, so a __getattr__ would never end.
        for name in ("get_compiler_config", "backend_ctx_ctor", "reset"):
            if hasattr(self.original, name):
                setattr(self, name, getattr(self.original, name))

    def __call__(self, graph: Any, inputs: Sequence[Any], **options: Any) -> Function:
        before = copied(graph)      # a backend may change the graph
        with without_dispatch_modes():
            compiled = self.original(graph, inputs, **options)
        return self._wrap(before, compiled, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedBackend) and bool(self.original == other.original)

    def __hash__(self) -> int:
        return hash(type(self))


def _name(backend: Any) -> str:
    return str(getattr(backend, "compiler_name", None) or getattr(backend, "__name__", type(backend).__name__))
