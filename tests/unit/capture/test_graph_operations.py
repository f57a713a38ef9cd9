"""What counts as an operation of a compiled graph."""

import numpy as np
import torch
import torch._dynamo.output_graph as output_graph

from torchtriage.capture.torch_private import dynamo, shapes


def test_numpy_in_a_graph_is_not_counted_as_an_operation() -> None:
    counts = []

    def count(compile_id: str, piece: object, graph: object) -> object:
        counts.append(shapes.num_operations(graph))
        return piece

    undo = dynamo.wrap_compiled_pieces(output_graph, count)
    assert undo is not None

    @torch.compile(backend="eager")
    def entropy(p: torch.Tensor) -> torch.Tensor:
        array = p.numpy()
        return torch.from_numpy(-(array * np.log(array + 1.0)).sum(-1)) * 2

    @torch.compile(backend="eager")
    def of_torch(p: torch.Tensor) -> torch.Tensor:
        return -(p * torch.log(p + 1.0)).sum(-1) * 2

    entropy(torch.rand(3, 4))
    of_torch(torch.rand(3, 4))
    undo()
    torch._dynamo.reset()
    assert counts[0] < counts[1] == 6
