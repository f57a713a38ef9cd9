"""The private names of torch that forcing and watching a shape policy takes: each behind a feature test, as in torch_private.py."""

import contextlib
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.torch_private.base import module, never_compile, replaced, telling
from torchtriage.errors import hide_frame

# A call of mark_dynamic or one of its kin: its name, arguments, and the frame that made it. A class of ours would be traced.
Mark = tuple[str, tuple[Any, ...], dict[str, Any], FrameType]

# A program that has inductor try out the processor as its first compile would; where it fails, each run does so by itself.
CHECK_PROCESSOR = "from torch._inductor.cpu_vec_isa import pick_vec_isa; pick_vec_isa()"


def is_null_context(context: Any) -> bool:
    """Whether torch.compile was told to do nothing, by disable=True or TORCHDYNAMO_DISABLE."""
    return isinstance(context, contextlib.nullcontext)


def add_enter_hook(context: Any, enter: Callable[[], Callable[[], None]]) -> bool:
    """Have `enter` run before each call of what this context compiles, and what it returns after; without it calls are not timed.

    Dynamo runs these hooks with its frame evaluation off, and not at all where it inlines the function: nothing of ours is traced.
    """
    hooks = getattr(context, "enter_exit_hooks", None)
    if not isinstance(hooks, list):
        return False
    hooks.insert(0, enter)
    return True


def tell_backend(backend: Any, dynamic: bool | None) -> None:
    """torch.compile's own backends carry the dynamic= they were made with, and are equal only if that is."""
    if type(backend).__module__ == "torch" and hasattr(backend, "dynamic"):
        backend.dynamic = dynamic


def raise_recompile_limit(limit: int) -> None:
    """Let frames be compiled so often, and all entries of one code object together too; a higher limit of the program's stays."""
    config = module("torch._dynamo.config")
    for new, old in (("recompile_limit", "cache_size_limit"), ("accumulated_recompile_limit", "accumulated_cache_size_limit")):
        name = new if hasattr(config, new) else old     # torch 2.6 renamed both
        if getattr(config, name, limit) < limit:
            setattr(config, name, limit)


def wrap_marks(decorators: ModuleType, names: tuple[str, ...], note: Callable[[Mark], None]) -> Callable[[], None] | None:
    """Call `note` with every call of mark_dynamic and its kin; without it a study does not know what the program marks itself."""
    def make(original: Any, notes: list[Any]) -> Any:
        tell = telling(notes)

        @functools.wraps(original)
        def mark(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            tell((original.__name__, args, kwargs, sys._getframe(1)))
            return result

        if not getattr(original, "_dynamo_forbidden", False):   # those it refuses in compiled code, it refuses in our form too
            mark._torchdynamo_inline = original  # type: ignore[attr-defined]  # what Dynamo traces is torch's own function
        return never_compile(mark)

    undos = [undo for name in names if (undo := replaced(decorators, name, note, make)) is not None]

    def undo_all() -> None:
        for undo in undos:
            undo()

    return undo_all if undos else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInput:
    """One argument of a compiled piece, by the name that TORCH_COMPILE_DYNAMIC_SOURCES knows it by."""

    position: int
    source: str
    dim: int | None = None          # it is the size of this dimension of `source`, which itself is no argument
    is_parameter: bool = False


def frame_place(graph: Any) -> tuple[str, int, str]:
    """The frame that an OutputGraph belongs to, as the structured trace names it."""
    code = graph.root_tx.f_code
    return code.co_filename, code.co_firstlineno, code.co_name


def graph_inputs(graph: Any) -> list[GraphInput]:
    """The tensors and ints that a piece is called with; sizes that are passed beside their tensor, and floats, are left out."""
    sources = [argument.source for argument in graph.graphargs]
    names = {_source_name(source) for source in sources if source is not None}
    found = []
    for position, (argument, source) in enumerate(zip(graph.graphargs, sources, strict=True)):
        if source is None or argument.pass_arg_as_tensor:
            continue
        if type(source).__name__ != "TensorPropertySource":
            is_parameter = isinstance(argument.example, module("torch").nn.Parameter)
            found.append(GraphInput(position=position, source=_source_name(source), is_parameter=is_parameter))
        elif source.prop.name == "SIZE" and _source_name(source.base) not in names:
            found.append(GraphInput(position=position, source=_source_name(source.base), dim=source.idx))
    return found


def _source_name(source: Any) -> str:
    return str(source.name() if callable(source.name) else source.name)     # a method before 2.10


def fresh_cache() -> contextlib.AbstractContextManager[Any] | None:
    """An empty cache of compiled code for a block; None if torch has no such (before 2.8 it had another name): trials then share one."""
    try:
        from torch._inductor import utils
    except ImportError:
        return None
    make = getattr(utils, "fresh_cache", None) or getattr(utils, "fresh_inductor_cache", None)
    return make() if make is not None else None
