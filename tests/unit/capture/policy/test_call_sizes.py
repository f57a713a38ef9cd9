"""Sizes are counted by frame, source and dimension, in bounded memory, and a piece answers as it did."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from torchtriage.capture.policy import call_sizes
from torchtriage.capture.policy.call_sizes import CallSizes
from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.capture.torch_private.shapes import GraphInput

PLACE = ("/a.py", 7, "f")


def tensor(*shape: Any) -> Any:
    return SimpleNamespace(shape=shape)


def piece(sizes: CallSizes, *inputs: GraphInput) -> Callable[..., Any]:
    return sizes.wrap(lambda *args: len(args), PLACE, inputs)


def seen(sizes: CallSizes) -> dict[tuple[str, int | None], dict[str, int]]:
    return {(row["source"], row["dim"]): row["values"] for row in sizes.facts()["sizes"]}


X, N = GraphInput(position=0, source="L['x']"), GraphInput(position=1, source="L['n']")


def test_every_dimension_and_number_is_counted() -> None:
    sizes = CallSizes()
    run = piece(sizes, X, N)
    assert [run(tensor(2, 4), 5), run(tensor(3, 4), 5), run(tensor(3, 4), 6)] == [2, 2, 2]
    assert seen(sizes) == {("L['x']", 0): {"3": 2, "2": 1}, ("L['x']", 1): {"4": 3}, ("L['n']", None): {"5": 2, "6": 1}}
    assert sizes.facts()["sizes"][0] == {
        "path": "/a.py", "line": 7, "function": "f", "source": "L['x']", "dim": 0,
        "values": {"3": 2, "2": 1}, "num_values": 2, "num_calls": 3,
    }


def test_the_compiles_of_one_frame_are_counted_together() -> None:
    sizes = CallSizes()
    piece(sizes, X)(tensor(2))
    piece(sizes, X)(tensor(3))
    size_only = GraphInput(position=0, source="L['x']", dim=0)      # this compile needs only the size of x
    piece(sizes, size_only)(3)
    assert seen(sizes) == {("L['x']", 0): {"3": 2, "2": 1}}


def test_a_parameter_is_listed_only_if_it_varies() -> None:
    sizes = CallSizes()
    run = piece(sizes, GraphInput(position=0, source="L['w']", is_parameter=True))
    run(tensor(4))
    assert seen(sizes) == {}
    run(tensor(8))
    assert seen(sizes) == {("L['w']", 0): {"4": 1, "8": 1}}


def test_memory_is_bounded_and_calls_are_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sizes, "MAX_SHAPES", 3)
    monkeypatch.setattr(call_sizes, "MAX_LISTED", 2)
    monkeypatch.setattr(call_sizes, "MAX_INPUTS", 1)
    sizes = CallSizes()
    run = piece(sizes, X, N)
    for size in (1, 2, 2, 3, 4, 5):
        run(tensor(size), 0)
    (row,) = sizes.facts()["sizes"]
    assert (row["values"], row["num_values"], row["num_calls"]) == ({"2": 2, "1": 1}, 3, 6)
    assert sizes.facts()["num_inputs_left_out"] == 1


def test_a_shape_that_is_no_numbers_is_left_out_and_the_piece_runs() -> None:
    sizes = CallSizes()
    run = piece(sizes, X, N)
    assert [run(tensor("j1", 4), 5), run(tensor("j1", 4), 5)] == [2, 2]
    assert seen(sizes) == {("L['n']", None): {"5": 2}}
    assert sizes.facts()["num_inputs_left_out"] == 1


def test_the_error_of_a_piece_passes_without_our_frame() -> None:
    def fails(*args: Any) -> None:
        raise ValueError("theirs")

    with pytest.raises(ValueError, match="theirs") as error:
        CallSizes().wrap(fails, PLACE, [])()
    assert [entry.name for entry in error.traceback][1:] == ["fails"]


def test_starting_over_forgets_the_sizes_and_keeps_the_pieces() -> None:
    sizes = CallSizes()
    run = piece(sizes, X)
    run(tensor(2))
    sizes.start_over()
    assert seen(sizes) == {}
    run(tensor(3))
    assert seen(sizes) == {("L['x']", 0): {"3": 1}}


class TensorPropertySource(SimpleNamespace):
    """Stands for torch's: the size of a dimension of another source."""


def argument(source: Any, as_tensor: bool = False, example: Any = None) -> Any:
    return SimpleNamespace(source=source, pass_arg_as_tensor=as_tensor, example=example)


def size_of(base: Any, idx: int, prop: str = "SIZE") -> Any:
    return TensorPropertySource(base=base, idx=idx, prop=SimpleNamespace(name=prop), name=f"{base.name}.size()[{idx}]")


def test_the_inputs_of_a_graph_are_named_by_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    class Parameter:
        pass

    torch = SimpleNamespace(nn=SimpleNamespace(Parameter=Parameter))
    monkeypatch.setattr(torch_private_shapes, "module", {"torch": torch}.get)
    x, unused, weight = (
        SimpleNamespace(name="L['x']"), SimpleNamespace(name="L['y']"), SimpleNamespace(name=lambda: "L['w']"),
    )
    graph = SimpleNamespace(graphargs=[
        argument(size_of(x, 0)), argument(x), argument(None), argument(SimpleNamespace(name="L['lr']"), as_tensor=True),
        argument(size_of(unused, 1)), argument(size_of(unused, 0, prop="STRIDE")),
        argument(weight, example=Parameter()),
    ])
    assert torch_private_shapes.graph_inputs(graph) == [
        GraphInput(position=1, source="L['x']"), GraphInput(position=4, source="L['y']", dim=1),
        GraphInput(position=6, source="L['w']", is_parameter=True),
    ]
