"""Graphs that are cut behind an operation still compute what the full graph computes there."""

from typing import Any

import torch

from torchtriage.capture.operations.graphs.bisection import Bisection
from torchtriage.capture.operations.graphs.graph_walk import eager
from torchtriage.capture.operations.graphs.prefix import alone, cut_after, operations
from torchtriage.capture.operations.graphs.snapshot import Snapshot


def traced() -> Any:
    return torch.fx.symbolic_trace(lambda x, w: (
        (x @ w).sub(1.0).relu().mul(2.0).add(x.sum()), x.exp()))


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 4, generator=generator), torch.randn(4, 4, generator=generator)]


def observed(graph: Any) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    eager(graph, values.__setitem__)(*inputs())
    return values


def test_a_cut_returns_every_value_that_is_used_later() -> None:
    graph = traced()
    values = observed(graph)
    relu = next(node for node in operations(graph) if node.target == "relu")
    (result,) = eager(cut_after(graph, relu, values))(*inputs())
    assert torch.equal(result, values[relu])


def test_a_tuple_is_returned_by_its_tensors() -> None:
    graph = torch.fx.symbolic_trace(lambda x, w: (x @ w).split(2))
    split = next(node for node in operations(graph) if node.target == "split")
    parts = eager(cut_after(graph, split, observed(graph)))(*inputs())
    assert [part.shape for part in parts] == [(2, 4), (2, 4)]


def test_only_the_used_tensors_of_a_tuple_are_returned() -> None:
    graph = torch.fx.symbolic_trace(lambda x, w: x.max(1)[0] + w)
    cut = cut_after(graph, operations(graph)[0], observed(graph))
    (largest,) = eager(cut)(*inputs())
    assert torch.equal(largest, inputs()[0].amax(1))


def test_a_tensor_that_is_sliced_later_is_returned_whole() -> None:
    graph = torch.fx.symbolic_trace(lambda x, w: (x @ w)[:, 1:])
    product = operations(graph)[0]
    (whole,) = eager(cut_after(graph, product, observed(graph)))(*inputs())
    assert torch.equal(whole, inputs()[0] @ inputs()[1])


def test_an_operation_alone_takes_its_inputs_as_arguments() -> None:
    graph = traced()
    values = observed(graph)
    mul = next(node for node in operations(graph) if node.target == "mul")
    single, sources = alone(graph, mul, values[mul])
    assert [source.target for source in sources] == ["relu"]
    assert torch.equal(eager(single)(values[sources[0]])[0], values[mul])


def wrong_relu(graph: Any, _: Any) -> Any:
    for node in graph.graph.nodes:
        if node.target == "relu":
            node.target = "abs"
    graph.recompile()
    return graph.forward


def test_the_search_ends_at_the_wrong_operation() -> None:
    found = Bisection(traced(), Snapshot(inputs()), wrong_relu, in_gradient=False).search()
    assert found.node is not None
    assert (found.node.target, found.is_wrong_alone, found.inputs_equal) == ("relu", True, True)
    assert list(found.aten) == ["aten.relu"]


def test_a_backend_that_is_wrong_only_for_the_full_graph_blames_no_operation() -> None:
    def wrong_at_the_end(graph: Any, arguments: Any) -> Any:
        is_full = any(node.target == "exp" for node in graph.graph.nodes)
        return wrong_relu(graph, arguments) if is_full else graph.forward

    found = Bisection(traced(), Snapshot(inputs()), wrong_at_the_end, in_gradient=False).search()
    assert found.node is None
    assert found.reason == "a value of an earlier operation differs only once Tensor.exp is compiled with it"


def test_a_backend_that_cannot_compile_parts_is_said() -> None:
    def full_only(graph: Any, arguments: Any) -> Any:
        if len(operations(graph)) < 7:
            raise RuntimeError("needs the full graph")
        return wrong_relu(graph, arguments)

    found = Bisection(traced(), Snapshot(inputs()), full_only, in_gradient=False).search()
    assert found.node is None
    assert found.reason == "7 operations could not be compiled separately"
