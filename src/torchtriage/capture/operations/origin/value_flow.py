"""Follows non-finite values from operation to operation while a step runs."""

import linecache
import math
from dataclasses import dataclass, field
from typing import Any

from torchtriage.capture.operations.graphs.outcome import tensors
from torchtriage.capture.operations.operation_stream import GARBAGE, Places, all_results, written_inputs
from torchtriage.capture.operations.origin import operands as of_values
from torchtriage.capture.operations.origin.modules import RunningModules
from torchtriage.capture.torch_private.dispatch import dispatch_mode
from torchtriage.capture.torch_private.graphs import backward_node_name, compile_id
from torchtriage.recording.origins.origin import Operand, OriginOperation

MAX_ROWS = 20_000       # operations whose result is not finite; later ones are not followed
# Masks of -Inf are created again in every step: between steps, more rows or more memory than this are forgotten.
KEPT_ROWS, KEPT_BYTES = 1_000, 256 << 20
# Their first argument is written without being read.
_OVERWRITES = ("aten.copy_", "aten.fill_", "aten.zero_", "aten.normal_", "aten.uniform_", "aten.bernoulli_")


@dataclass(frozen=True, slots=True)
class BadInput:
    """An input that is not finite: the rows that wrote it, none if that was before the watched steps."""

    operand: Operand
    writers: tuple[int, ...]
    is_parameter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """An operation whose result is not finite."""

    operation: OriginOperation
    inputs: tuple[BadInput, ...]
    is_constant: bool = False       # it writes a NaN or Inf that the program gave as a number
    is_garbage: bool = False        # memory that was never written


@dataclass(slots=True)
class _Carrier:
    """The memory of a tensor that is not finite; kept, as its address would be used again."""

    tensor: Any
    rows: list[int]


@dataclass(slots=True)
class ValueFlow:
    """The rows of the watched operations, and which row wrote the memory of each tensor that is not finite."""

    rows: list[FlowRow] = field(default_factory=list)
    num_operations: int = 0
    is_paused: bool = False
    is_full: bool = False
    _carriers: dict[tuple[Any, int], _Carrier] = field(default_factory=dict)
    _modules: RunningModules = field(default_factory=RunningModules)
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places(more=self._modules.place)

    def mode(self) -> Any:
        """The context in which operations are followed."""
        return dispatch_mode(self.run)

    def writers(self, tensor: Any) -> tuple[int, ...]:
        """The rows that wrote the values of a tensor that is not finite."""
        carrier = self._carriers.get(_memory(tensor))
        return tuple(carrier.rows) if carrier is not None else ()

    def step_ended(self) -> None:
        """Forget old values if there are many; those that live on count as made before the watched steps."""
        num_bytes = sum(carrier.tensor.untyped_storage().nbytes() for carrier in self._carriers.values())
        if len(self.rows) > KEPT_ROWS or num_bytes > KEPT_BYTES:
            self.rows.clear()
            self._carriers.clear()

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.is_paused or self.is_full or compile_id():
            return func(*args, **kwargs)
        self.num_operations += 1
        place = self._places.find()
        if func.is_view:
            return func(*args, **kwargs)
        name = str(func).removesuffix(".default")
        given = _read(func, args, kwargs, name)
        before = _before(func, args, kwargs, given)
        result = func(*args, **kwargs)
        if name.startswith(GARBAGE):
            self._note_garbage(name, place, result)
            return result
        values = [tensor for tensor in all_results(func, result, args, kwargs) if of_values.is_plain(tensor)]
        bad = [tensor for tensor in values if not of_values.is_finite(tensor)]
        if bad:
            read = [before.get(id(tensor), tensor) for tensor in given]
            self._add(name, place, list(zip(given, read, strict=True)), (args, kwargs), bad)
        for tensor in values:
            if all(tensor is not other for other in bad):
                self._forget(tensor)
        return result

    def _add(
        self, name: str, place: dict[str, Any], read: list[tuple[Any, Any]], arguments: Any, bad: list[Any],
    ) -> None:
        """`read` has each input now, which the operation may have changed, and as it was before."""
        if len(self.rows) >= MAX_ROWS:
            self.is_full = True
            return
        own_names = {}
        inputs = []
        for now, then in read:
            if of_values.is_finite(then):
                continue
            writers = self.writers(now)
            is_parameter = type(now).__name__ == "Parameter"
            if not writers:
                own_names[id(then)] = self._modules.name_of(now)
            inputs.append(BadInput(of_values.operand(then, own_names.get(id(then), "")), writers, is_parameter))
        node = backward_node_name() if place["is_backward"] else ""
        code = linecache.getline(place["path"], place["line"] or 0).strip()
        operation = OriginOperation(
            name=name, node=node, code=code, results=of_values.results(bad),
            operands=of_values.operands([then for _, then in read], arguments, own_names), **place)
        is_constant = not inputs and any(not math.isfinite(number) for number in of_values.numbers(arguments))
        self._carry(FlowRow(operation=operation, inputs=tuple(inputs), is_constant=is_constant), bad)

    def _note_garbage(self, name: str, place: dict[str, Any], result: Any) -> None:
        values = [tensor for tensor in tensors(result) if of_values.is_plain(tensor)]
        bad = [tensor for tensor in values if not of_values.is_finite(tensor)]
        for tensor in values:
            self._forget(tensor)
        if bad and len(self.rows) < MAX_ROWS:
            operation = OriginOperation(name=name, results=of_values.results(bad), **place)
            self._carry(FlowRow(operation=operation, inputs=(), is_garbage=True), bad)

    def _carry(self, row: FlowRow, bad: list[Any]) -> None:
        self.rows.append(row)
        for tensor in bad:
            earlier = () if _is_whole(tensor) else self.writers(tensor)
            self._carriers[_memory(tensor)] = _Carrier(tensor.detach(), [*earlier, len(self.rows) - 1])

    def _forget(self, tensor: Any) -> None:
        """The values that were written are finite; those beside a view of the memory may still be bad."""
        if self._carriers and _is_whole(tensor):
            self._carriers.pop(_memory(tensor), None)


def _memory(tensor: Any) -> tuple[Any, int]:
    return tensor.device, tensor.untyped_storage().data_ptr()


def _is_whole(tensor: Any) -> bool:
    return bool(tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())


def _read(func: Any, args: Any, kwargs: Any, name: str) -> list[Any]:
    """The tensors that an operation reads: without outputs that the caller gives, and what it only overwrites."""
    outputs = {argument.name for argument in func._schema.arguments if argument.is_out}
    kept = {key: value for key, value in kwargs.items() if key not in outputs}
    given = list(tensors((args, kept)))
    return given[1:] if name.startswith(_OVERWRITES) else given


def _before(func: Any, args: Any, kwargs: Any, given: list[Any]) -> dict[int, Any]:
    """Copies of the inputs that the operation changes, by the identity of the input."""
    if not func._schema.is_mutable:
        return {}
    written = {id(tensor) for tensor in written_inputs(func, args, kwargs)}
    return {id(tensor): tensor.detach().clone() for tensor in given if id(tensor) in written
            and of_values.is_plain(tensor)}
