"""The private names of torch that a shape policy needs, to be forced or observed."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.torch_private.base import Undo, module, never_compile, notifier, replaced
from torchtriage.errors import hide_frame

# A call of mark_dynamic or a similar function: its name, its arguments, and the frame that made the call.
# A plain tuple, because Dynamo would trace a class of ours.
Mark = tuple[str, tuple[Any, ...], dict[str, Any], FrameType]

# A program in which inductor tests the processor as its first compile would. If it fails, each run repeats the test.
CHECK_PROCESSOR = "from torch._inductor.cpu_vec_isa import pick_vec_isa; pick_vec_isa()"
_OPTIMIZERS = f"{os.sep}torch{os.sep}optim{os.sep}"


def is_null_context(context: Any) -> bool:
    """Whether torch.compile is disabled here, by disable=True or TORCHDYNAMO_DISABLE."""
    return isinstance(context, contextlib.nullcontext)


def add_enter_hook(context: Any, enter: Callable[[], Callable[[], None]]) -> bool:
    """Run `enter` before each call of the function that this context compiles, and the function it returns afterwards.

    Dynamo runs these hooks with frame evaluation off, and skips them where it inlines the function, so it never traces
    them. Returns whether torch has such hooks; without them calls are not timed.
    """
    hooks = getattr(context, "enter_exit_hooks", None)
    if not isinstance(hooks, list):
        return False
    hooks.insert(0, enter)
    return True


def tell_backend(backend: Any, dynamic: bool | None) -> None:
    """Set dynamic= of one of torch.compile's own backends, which compare equal only if it is the same."""
    if type(backend).__module__ == "torch" and hasattr(backend, "dynamic"):
        backend.dynamic = dynamic


def raise_recompile_limit(limit: int) -> None:
    """Raise the recompile limits per frame and per code object to `limit`; a higher limit of the program's is kept."""
    config = module("torch._dynamo.config")
    for name, name_before_2_6 in (
        ("recompile_limit", "cache_size_limit"), ("accumulated_recompile_limit", "accumulated_cache_size_limit"),
    ):
        if not hasattr(config, name):
            name = name_before_2_6
        if getattr(config, name, limit) < limit:
            setattr(config, name, limit)


def wrap_marks(decorators: ModuleType, names: tuple[str, ...], note: Callable[[Mark], None]) -> Undo | None:
    """Call `note` with every call of mark_dynamic and similar functions.

    Without it a study does not know which sizes the program marks itself.
    """
    def make(original: Any, notes: list[Any]) -> Any:
        notify = notifier(notes)

        @functools.wraps(original)
        def mark(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            notify((original.__name__, args, kwargs, sys._getframe(1)))
            return result

        # Dynamo traces torch's own function instead. A function that it forbids in compiled code stays forbidden.
        if not getattr(original, "_dynamo_forbidden", False):
            mark._torchdynamo_inline = original  # type: ignore[attr-defined]
        return never_compile(mark)

    undos = []
    for name in names:
        undo = replaced(decorators, name, note, make)
        if undo is not None:
            undos.append(undo)

    def undo_all() -> None:
        for undo in undos:
            undo()

    return undo_all if undos else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInput:
    """One argument of a compiled piece; `source` is its name in TORCH_COMPILE_DYNAMIC_SOURCES."""

    position: int
    source: str
    dim: int | None = None          # the argument is the size of this dimension of `source`, not the tensor
    is_parameter: bool = False


def frame_place(graph: Any) -> tuple[str, int, str]:
    """(path, first line, function) of the frame that an OutputGraph belongs to, as in the structured trace."""
    code = graph.root_tx.f_code
    return code.co_filename, code.co_firstlineno, code.co_name


def graph_inputs(graph: Any) -> list[GraphInput]:
    """The tensors and ints that a piece is called with, except floats and sizes whose tensor is passed too."""
    sources = [argument.source for argument in graph.graphargs]
    names = {_source_name(source) for source in sources if source is not None}
    inputs = []
    for position, (argument, source) in enumerate(zip(graph.graphargs, sources, strict=True)):
        if source is None or argument.pass_arg_as_tensor:
            continue
        if type(source).__name__ != "TensorPropertySource":
            is_parameter = isinstance(argument.example, module("torch").nn.Parameter)
            inputs.append(GraphInput(position=position, source=_source_name(source), is_parameter=is_parameter))
        elif source.prop.name == "SIZE" and _source_name(source.base) not in names:
            inputs.append(GraphInput(position=position, source=_source_name(source.base), dim=source.idx))
    return inputs


def _source_name(source: Any) -> str:
    return str(source.name() if callable(source.name) else source.name)     # a method before 2.10


def fresh_cache() -> contextlib.AbstractContextManager[Any] | None:
    """A context with an empty cache of compiled code; None if torch has none, and trials then share one cache."""
    try:
        from torch._inductor import utils
    except ImportError:
        return None
    make = getattr(utils, "fresh_cache", None) or getattr(utils, "fresh_inductor_cache", None)   # before 2.8
    return make() if make is not None else None


def num_operations(graph: Any) -> tuple[int, int]:
    """(the operations of an OutputGraph whose result is a tensor, those of them that an optimizer of torch calls).

    (0, 0) if this torch has another form of graph. Calls of NumPy that Dynamo takes into a graph are left out: eager
    runs, whose operations are compared, have none.
    """
    tensor = module("torch").Tensor
    nodes = getattr(getattr(graph, "graph", None), "nodes", ())
    calls = [
        node for node in nodes if node.op in ("call_function", "call_method", "call_module")
        and not type(node.target).__name__.startswith("numpy_") and isinstance(node.meta.get("example_value"), tensor)
    ]
    return len(calls), sum(1 for node in calls if _OPTIMIZERS in (node.meta.get("stack_trace") or ""))
