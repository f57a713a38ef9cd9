"""Every operation of ATen that runs in a context, with digests of what it reads or writes."""

import hashlib
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torchtriage.capture.operations.graphs.outcome import tensors
from torchtriage.capture.torch_private.base import is_torch_file
from torchtriage.capture.torch_private.graphs import (
    backward_sequence_number,
    compile_id,
    dynamo_paused,
    sequence_number,
)

MAX_PLACES = 100_000        # of forward operations; the oldest half is forgotten then, whose graphs have ended
MAX_OPERATIONS = 20_000     # of one step; the stream then says that it was cut
GARBAGE = ("aten.empty", "aten.new_empty")     # values that nobody wrote
# Operations that overwrite their first input without reading it: it may be memory that nobody wrote
_OVERWRITING = frozenset((
    "bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_", "normal_", "random_",
    "uniform_", "zero_",
))
_UNIMPORTANT = ("aten.detach", "aten._local_scalar_dense", "profiler.", "prim.")
Put = Callable[[dict[str, Any]], None]


def digest(tensor: Any) -> list[Any]:
    """Shape, dtype, a hash of the bytes, and in float64 the norm and a fixed projection."""
    import torch

    form = [list(tensor.shape), str(tensor.dtype).removeprefix("torch.")]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta:
        return [*form, "", None, None]
    plain = tensor.detach().cpu().contiguous()
    line = plain.as_strided((plain.numel(),), (1,))     # a single value may be contiguous with a stride of 0
    code = hashlib.blake2b(line.view(torch.uint8).numpy().tobytes(), digest_size=8).hexdigest() \
        if plain.numel() else "empty"
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    values = plain.double().reshape(-1)
    pattern = torch.cos(torch.arange(values.numel(), dtype=torch.float64) * 0.618 + 0.5)
    return [*form, code, float(values.norm()), float(values @ pattern)]


@dataclass(slots=True)
class Places:
    """Where operations come from: the graph node in progress, and the forward operations by sequence number."""

    of_graph: dict[str, Any] | None = None
    forward: dict[int, dict[str, Any]] = field(default_factory=dict)
    more: Callable[[], dict[str, str]] = dict       # further fields of a place

    def find(self) -> dict[str, Any]:
        """The line of the program; of a backward operation that of the forward operation it belongs to."""
        backward = backward_sequence_number()
        if backward is not None:
            place = self.forward.get(backward) or self._here()
            return {**place, "is_backward": True}
        place = self.of_graph or self._here()
        number = sequence_number()
        if number is not None:
            # The node of this operation was numbered before it was dispatched; operations without a node follow it.
            self.forward.setdefault(number - 1, place)
            if len(self.forward) > MAX_PLACES:
                self.forward = dict(itertools.islice(self.forward.items(), MAX_PLACES // 2, None))
        return {**place, "is_backward": False}

    def _here(self) -> dict[str, Any]:
        return {**_line_of_program(), **self.more()}


def recording_mode(put: Put, places: Places) -> Any:
    """A dispatch mode that puts one row per operation that computes or writes something."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class RecordingMode(TorchDispatchMode):     # type: ignore[misc]  # torch is untyped for mypy here
        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True     # Dynamo compiles nothing under another kind of mode

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = str(func).removesuffix(".default")
            if func.is_view or name.startswith(GARBAGE) or compile_id():
                return func(*args, **kwargs)
            is_overwritten = func._schema.name.rpartition("::")[2] in _OVERWRITING
            given = list(tensors((args[is_overwritten:], kwargs)))
            inputs = [digest(tensor) for tensor in given]
            result = func(*args, **kwargs)
            if not name.startswith(_UNIMPORTANT):
                put({"name": name, **places.find(), "inputs": inputs,
                     "outputs": [digest(tensor) for tensor in all_results(func, result, args, kwargs)],
                     "is_random": torch.Tag.nondeterministic_seeded in func.tags})
            return result

    return RecordingMode()


def names_of(function: Callable[..., Any], arguments: Sequence[Any]) -> list[str]:
    """The ATen operations that a call runs, each once."""
    rows: list[dict[str, Any]] = []
    with dynamo_paused(), recording_mode(rows.append, Places()):
        function(*arguments)
    return list(dict.fromkeys(row["name"] for row in rows))


def all_results(func: Any, result: Any, args: Any, kwargs: Any) -> list[Any]:
    """The outputs and the inputs that the operation writes to."""
    written = written_inputs(func, args, kwargs)
    returned = [tensor for tensor in tensors(result) if all(tensor is not other for other in written)]
    return [*returned, *written]


def written_inputs(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The inputs that the operation writes to."""
    written: list[Any] = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            written.extend(tensors(value))
    return written


def _line_of_program() -> dict[str, Any]:
    """The innermost frame that is neither torch's nor of an installed package, and the module it belongs to."""
    import torch

    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_torch_file(path) and "site-packages" not in path and "/torchtriage/capture/" not in path:
            owner = frame.f_locals.get("self")
            module = type(owner).__qualname__ if isinstance(owner, torch.nn.Module) else ""
            return {"path": path, "line": frame.f_lineno, "function": frame.f_code.co_name, "module": module}
        frame = frame.f_back
    return {"path": "", "line": None, "function": "", "module": ""}
