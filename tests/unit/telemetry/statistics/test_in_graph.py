"""The operator in a compiled function: one graph, no break, no recompile, and no change of the training."""

from collections.abc import Iterator

import pytest
import torch

import torchtriage
from tests.unit.telemetry.counting import host_reads, operations
from tests.unit.telemetry.reference import assert_exact, true_row
from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics import in_graph as compiled
from torchtriage.telemetry.statistics.columns import LARGE, NUM_STATS, SMALL
from torchtriage.telemetry.statistics.in_graph import (
    new_statistics_ring,
    record_statistics,
    tensor_statistics,
    write_on_device,
)

NUM_STEPS, LENGTH = 50, 8


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


Tensors = dict[str, torch.Tensor]


def trained(backend: str, *, recorded: bool) -> tuple[Tensors, torch.Tensor, list[Tensors], torchtriage.Seen]:
    """(weights, ring, gradients of each step, what torch.compile did) of a training whose entire step is compiled."""
    random = torch.Generator().manual_seed(0)
    weights = {
        "hidden": torch.randn(6, 9, generator=random),
        "bias": torch.zeros(9),
        "head": torch.randn(9, 1, generator=random),
    }
    ring_LPS, step = new_statistics_ring(list(weights.values()), length=LENGTH), torch.zeros((), dtype=torch.int64)

    def loss(weights: Tensors, x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ weights["hidden"] + weights["bias"]) @ weights["head"]).square().mean()

    @torch.compile(fullgraph=True, backend=backend)
    def train_step(weights: Tensors, x: torch.Tensor) -> tuple[Tensors, Tensors]:
        gradients = torch.func.grad(loss)(weights, x)
        if recorded:
            record_statistics(list(gradients.values()), ring_LPS, step)
        step.add_(1)
        return {name: weight - 0.1 * gradients[name] for name, weight in weights.items()}, gradients

    seen_gradients = []
    with torchtriage.watch() as seen:
        for _ in range(NUM_STEPS):
            weights, gradients = train_step(weights, torch.randn(4, 6, generator=random))
            seen_gradients.append(gradients)
    return weights, ring_LPS, seen_gradients, seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.thorough)])
def test_compiled_step_with_statistics_is_one_graph_and_the_same_training(backend: str) -> None:
    weights, ring_LPS, gradients, seen = trained(backend, recorded=True)
    assert (seen.graph_breaks, seen.recompiles) == ([], [])
    assert seen.report.totals["compiles"] == 1
    torch.compiler.reset()
    plain_weights, empty_LPS, _, _ = trained(backend, recorded=False)
    assert all(torch.equal(weights[name], plain_weights[name]) for name in weights)
    assert not empty_LPS.any()
    for step in range(NUM_STEPS - LENGTH, NUM_STEPS):
        for row, gradient in zip(ring_LPS[step % LENGTH].numpy(), gradients[step].values(), strict=True):
            assert_exact(row, true_row(gradient))


def test_operator_declares_the_ring_as_mutated() -> None:
    tensors = [torch.randn(5), torch.randn(3, 2).half(), torch.zeros(0)]
    args = (tensors, new_statistics_ring(tensors, length=3), torch.tensor(4), SMALL, LARGE)
    torch.library.opcheck(tensor_statistics, args)
    assert [a.name for a in torch.ops.torchtriage.tensor_statistics.default._schema.arguments if a.alias_info] == [
        "ring"
    ]


def test_parameters_are_recorded_outside_a_graph_too() -> None:
    parameter = torch.nn.Parameter(torch.randn(40))
    ring_LPS = new_statistics_ring([parameter], length=4)
    for step in (0, 5):
        record_statistics([parameter], ring_LPS, torch.tensor(step))
    assert_exact(ring_LPS[1, 0].numpy(), true_row(parameter))
    assert ring_LPS[0].any()
    assert not ring_LPS[2:].any()


def test_device_selects_the_row_without_a_read_of_the_step() -> None:
    """The same code that a GPU runs, on the CPU."""
    tensors = [torch.randn(50), torch.randn(7).bfloat16()]
    ring_LPS, step = new_statistics_ring(tensors, length=4), torch.tensor(6)
    write_on_device(tensors, ring_LPS, step, SMALL, LARGE)
    ring_LPS.zero_()
    with operations() as seen:
        reads = host_reads(lambda: write_on_device(tensors, ring_LPS, step, SMALL, LARGE))
    assert reads == []
    assert not any("_local_scalar_dense" in name for name in seen.names)
    assert seen.num_bytes < 1000
    for row, tensor in zip(ring_LPS[2].numpy(), tensors, strict=True):
        assert_exact(row, true_row(tensor))
    assert not ring_LPS[[0, 1, 3]].any()


def test_number_of_cached_plans_is_bounded() -> None:
    for size in range(2 * compiled.MAX_PLANS):
        ring = new_statistics_ring([torch.ones(1)] * (size + 1), length=1)
        record_statistics([torch.ones(1)] * (size + 1), ring, torch.tensor(0))
    assert len(compiled._plans) == compiled.MAX_PLANS


@pytest.mark.parametrize(
    ("ring", "step", "message"),
    [
        (torch.zeros(4, 2, NUM_STATS, dtype=torch.float64), torch.tensor(0), r"of shape \(length, 1, 12\)"),
        (torch.zeros(4, 1, NUM_STATS), torch.tensor(0), r"and torch\.float64, got"),
        (
            torch.zeros(0, 1, NUM_STATS, dtype=torch.float64),
            torch.tensor(0),
            "the ring for 1 tensor must be contiguous, of shape",
        ),
        (torch.zeros(4, 1, NUM_STATS, dtype=torch.float64), torch.tensor(0.0), "integer tensor"),
        (torch.zeros(4, 1, NUM_STATS, dtype=torch.float64), torch.tensor([0, 1]), "integer tensor"),
    ],
)
def test_wrong_ring_or_step_is_refused_with_a_remedy(ring: torch.Tensor, step: torch.Tensor, message: str) -> None:
    with pytest.raises(TriageError, match=message):
        record_statistics([torch.ones(1)], ring, step)


def test_wrong_ring_is_refused_during_compilation() -> None:
    with pytest.raises(Exception, match=r"new_statistics_ring\(tensors, length"):
        torch.compile(
            lambda x: record_statistics([x], torch.zeros(4, 2, NUM_STATS), torch.tensor(0)),
            fullgraph=True,
            backend="eager",
        )(torch.ones(1))


def test_ring_has_at_least_one_row() -> None:
    with pytest.raises(TriageError, match="at least one row, got length=0"):
        new_statistics_ring([torch.ones(1)], length=0)
