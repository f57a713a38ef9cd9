"""What counts as an operation of a compiled graph."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch._dynamo.output_graph as output_graph

from torchtriage.capture.torch_private import dynamo, shapes


@pytest.fixture
def counts() -> Iterator[list[tuple[int, int]]]:
    """(operations, those of optimizers) of each graph that is compiled."""
    found: list[tuple[int, int]] = []

    def count(compile_id: str, piece: object, graph: object) -> object:
        found.append(shapes.num_operations(graph))
        return piece

    undo = dynamo.wrap_compiled_pieces(output_graph, count)
    assert undo is not None
    yield found
    undo()
    torch._dynamo.reset()


def test_numpy_in_a_graph_is_not_counted_as_an_operation(counts: list[tuple[int, int]]) -> None:
    @torch.compile(backend="eager")
    def entropy(p: torch.Tensor) -> torch.Tensor:
        array = p.numpy()
        return torch.from_numpy(-(array * np.log(array + 1.0)).sum(-1)) * 2

    @torch.compile(backend="eager")
    def of_torch(p: torch.Tensor) -> torch.Tensor:
        return -(p * torch.log(p + 1.0)).sum(-1) * 2

    entropy(torch.rand(3, 4))
    of_torch(torch.rand(3, 4))
    assert counts[0][0] < counts[1][0] == 6


def test_the_operations_of_an_optimizer_are_told_from_those_of_the_program(counts: list[tuple[int, int]]) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, foreach=False)

    @torch.compile(backend="eager")
    def update(x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        return x * 2

    update(torch.ones(2))
    total, in_optimizer = (sum(numbers) for numbers in zip(*counts, strict=True))
    assert 0 < in_optimizer == total - 1
