"""Counts the input sizes of every compiled piece, so that varying sizes are known even if no recompile names them."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torchtriage.capture.torch_private import base as torch_private
from torchtriage.capture.torch_private.base import never_compile
from torchtriage.capture.torch_private.shapes import GraphInput
from torchtriage.errors import hide_frame, pass_on_signals

MAX_SHAPES = 4096       # distinct shapes that are counted per input
MAX_INPUTS = 8192       # inputs of all frames; a large model has several thousand parameters and buffers
MAX_LISTED = 64         # values of one dimension in the recording, the most frequent ones

Place = tuple[str, int, str]


class _Input:
    """The shapes of one input of one frame, over all compiles of the frame."""

    __slots__ = ("counts", "is_parameter", "num_others")

    def __init__(self, is_parameter: bool) -> None:
        self.is_parameter = is_parameter
        self.counts: dict[int | tuple[int, ...], int] = {}      # an int input counts as itself
        self.num_others = 0     # calls with a new shape beyond MAX_SHAPES

    def add(self, shape: int | tuple[int, ...]) -> None:
        if shape in self.counts:
            self.counts[shape] += 1
        elif len(self.counts) < MAX_SHAPES:
            self.counts[shape] = 1
        else:
            self.num_others += 1


class CallSizes:
    """Memory is bounded by the number of inputs and of distinct shapes. For runs that are not timed."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[Place, str, int | None], _Input] = {}
        self._num_left_out = 0

    def wrap(self, piece: Callable[..., Any], place: Place, inputs: Sequence[GraphInput]) -> Callable[..., Any]:
        """The piece, preceded by counting the sizes of its arguments."""
        watched = []
        for graph_input in inputs:
            counter = self._input(place, graph_input)
            if counter is not None:
                watched.append((graph_input.position, counter))
        swap = torch_private.frame_callback_swap()

        def sized_piece(*args: Any) -> Any:
            callback = swap(None)   # a Tensor subclass may run Python code to compute its shape
            try:
                self._count(watched, args)
            finally:
                swap(callback)
            try:
                return piece(*args)
            except BaseException as error:
                hide_frame(error)
                raise

        return never_compile(sized_piece)

    def facts(self) -> dict[str, Any]:
        by_dim: dict[tuple[Place, str, int | None], Counter[int]] = {}
        num_others: Counter[tuple[Place, str, int | None]] = Counter()
        for (place, source, dim), counter in list(self._inputs.items()):
            if counter.is_parameter and len(counter.counts) < 2:
                continue    # a model has thousands of them, and torch treats them as constant
            for shape, num_calls in list(counter.counts.items()):
                sizes = [(dim, shape)] if isinstance(shape, int) else enumerate(shape)
                for size_dim, size in sizes:
                    key = (place, source, size_dim)
                    by_dim.setdefault(key, Counter())[size] += num_calls
                    num_others[key] = counter.num_others
        rows = [_row(*key, values, num_others[key]) for key, values in by_dim.items()]
        return {"sizes": rows, "num_inputs_left_out": self._num_left_out}

    def start_over(self) -> None:
        """A forked child counts its own calls of the pieces it inherits."""
        for counter in self._inputs.values():
            counter.counts.clear()
            counter.num_others = 0

    def _count(self, watched: list[tuple[int, _Input]], args: tuple[Any, ...]) -> None:
        for position, counter in tuple(watched):
            try:
                value = args[position]
                counter.add(value if type(value) is int else tuple(map(int, value.shape)))
            except Exception as error:      # the sizes of a jagged tensor are not numbers
                pass_on_signals(error)
                watched.remove((position, counter))
                self._num_left_out += 1

    def _input(self, place: Place, graph_input: GraphInput) -> _Input | None:
        key = (place, graph_input.source, graph_input.dim)
        if key not in self._inputs:
            if len(self._inputs) >= MAX_INPUTS:
                self._num_left_out += 1
                return None
            self._inputs[key] = _Input(graph_input.is_parameter)
        return self._inputs[key]


def _row(place: Place, source: str, dim: int | None, values: Counter[int], num_others: int) -> dict[str, Any]:
    path, line, function = place
    return {
        "path": path, "line": line, "function": function, "source": source, "dim": dim,
        "values": {str(size): num_calls for size, num_calls in values.most_common(MAX_LISTED)},
        "num_values": len(values), "num_calls": values.total() + num_others,
    }
