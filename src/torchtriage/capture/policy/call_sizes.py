"""Which sizes the inputs of every compiled piece took, over all its calls: what varies is seen even where no recompile names it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torchtriage.capture.torch_private import base as torch_private
from torchtriage.capture.torch_private.base import never_compile
from torchtriage.capture.torch_private.shapes import GraphInput
from torchtriage.errors import hide_frame, pass_on_signals

MAX_SHAPES = 4096       # distinct shapes that one input is told apart by
MAX_INPUTS = 8192       # inputs of all frames; a large model has some thousand parameters and buffers
MAX_LISTED = 64         # values of one dimension in the recording, the most frequent ones

Place = tuple[str, int, str]


class _Input:
    """The shapes of one input of one frame, whichever of the frame's compiles received it."""

    __slots__ = ("counts", "is_parameter", "num_others")

    def __init__(self, is_parameter: bool) -> None:
        self.is_parameter = is_parameter
        self.counts: dict[int | tuple[int, ...], int] = {}      # an int that is an input counts as itself
        self.num_others = 0     # calls whose shape was new after MAX_SHAPES of them

    def add(self, shape: int | tuple[int, ...]) -> None:
        if shape in self.counts:
            self.counts[shape] += 1
        elif len(self.counts) < MAX_SHAPES:
            self.counts[shape] = 1
        else:
            self.num_others += 1


class CallSizes:
    """Memory is bounded by the number of inputs and of distinct shapes. Meant for runs that are not timed."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[Place, str, int | None], _Input] = {}
        self._num_left_out = 0

    def wrap(self, piece: Callable[..., Any], place: Place, inputs: Sequence[GraphInput]) -> Callable[..., Any]:
        """The piece, except that the sizes of what it is called with are noted first."""
        watched = [(one.position, found) for one in inputs if (found := self._input(place, one)) is not None]
        swap = torch_private.frame_callback_swap()

        def sized_piece(*args: Any) -> Any:
            callback = swap(None)   # a subclass of Tensor may run Python to tell its shape
            try:
                self._note(watched, args)
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
        for (place, source, dim), found in list(self._inputs.items()):
            if found.is_parameter and len(found.counts) < 2:
                continue    # a model has thousands of them, and torch takes them for constant
            for shape, num_calls in list(found.counts.items()):
                sizes = [(dim, shape)] if isinstance(shape, int) else enumerate(shape)
                for key, size in (((place, source, dim), size) for dim, size in sizes):
                    by_dim.setdefault(key, Counter())[size] += num_calls
                    num_others[key] = found.num_others
        return {"sizes": [_row(*key, values, num_others[key]) for key, values in by_dim.items()], "num_inputs_left_out": self._num_left_out}

    def start_over(self) -> None:
        """A forked child counts its own calls of the pieces it inherits."""
        for found in self._inputs.values():
            found.counts.clear()
            found.num_others = 0

    def _note(self, watched: list[tuple[int, _Input]], args: tuple[Any, ...]) -> None:
        for position, found in tuple(watched):
            try:
                value = args[position]
                found.add(value if type(value) is int else tuple(map(int, value.shape)))
            except Exception as error:      # a jagged tensor has sizes that are no numbers
                pass_on_signals(error)
                watched.remove((position, found))
                self._num_left_out += 1

    def _input(self, place: Place, one: GraphInput) -> _Input | None:
        key = (place, one.source, one.dim)
        if key not in self._inputs:
            if len(self._inputs) >= MAX_INPUTS:
                self._num_left_out += 1
                return None
            self._inputs[key] = _Input(one.is_parameter)
        return self._inputs[key]


def _row(place: Place, source: str, dim: int | None, values: Counter[int], num_others: int) -> dict[str, Any]:
    path, line, function = place
    return {
        "path": path, "line": line, "function": function, "source": source, "dim": dim,
        "values": {str(size): num_calls for size, num_calls in values.most_common(MAX_LISTED)},
        "num_values": len(values), "num_calls": values.total() + num_others,
    }
