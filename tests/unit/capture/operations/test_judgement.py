"""What passes as rounding, and what does not, on functions in place of compiled graphs."""

from collections.abc import Callable

import torch

from torchtriage.capture.operations.graphs import graph_walk
from torchtriage.capture.operations.graphs.judgement import Judge
from torchtriage.capture.operations.graphs.snapshot import Snapshot

Function = Callable[..., tuple[torch.Tensor, ...]]


def kinds(eager: Function, compiled: Function, *inputs: torch.Tensor) -> list[str]:
    """The kinds of the values that differ beyond rounding."""
    graph = torch.fx.symbolic_trace(eager)
    judge = Judge(graph_walk.eager(graph), graph_walk.in_double(graph), Snapshot(inputs))
    return [found.kind for found in judge.judge(compiled).differences]


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_another_order_of_summation_is_rounding() -> None:
    x = values(64, 500)
    assert kinds(lambda x: (x.sum(1),), lambda x: (x.flip(1).cumsum(1)[:, -1],), x) == []


def test_a_constant_that_is_wrong_in_the_fourth_digit_is_not() -> None:
    assert kinds(lambda x: (x * 0.25,), lambda x: (x * 0.2501,), values(8, 8)) == ["output"]


def test_a_lowered_dtype_is_not_rounding_where_the_program_asks_float32() -> None:
    def lowered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((x.bfloat16() @ x.bfloat16()).float(),)

    assert kinds(lambda x: (x @ x,), lowered, values(16, 16)) == ["output"]
    assert kinds(lowered, lambda x: (x @ x,), values(16, 16)) == [], "closer to the reference than eager code"


def test_a_missed_write_differs_in_the_input() -> None:
    def write(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        return ()

    x = values(4)
    before = x.clone()
    assert kinds(write, lambda _: (), x) == ["written input"]
    assert torch.equal(x, before), "the inputs themselves are not touched"


def test_a_wrong_gradient_differs_where_the_output_agrees() -> None:
    class Negated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return -2 * grad

    x = values(4).requires_grad_()
    assert kinds(lambda x: (x * 2,), lambda x: (Negated.apply(x),), x) == ["gradient"]
    assert x.grad is None


def test_values_that_cancel_may_differ_as_far_as_eager_code_is_from_its_reference() -> None:
    x = values(100)
    assert kinds(lambda x: ((x + 1e6) - 1e6,), lambda x: (torch.nextafter(x + 1e6, torch.tensor(2e6)) - 1e6,), x) == []


def test_a_discrete_value_that_rounding_does_not_decide_is_a_difference() -> None:
    x = torch.arange(8.0)
    assert kinds(lambda x: (x.argmax(),), lambda x: (x.argmax() - 1,), x) == ["output"]


def test_a_nan_that_eager_code_does_not_have_is_a_difference() -> None:
    assert kinds(lambda x: (x.abs().sqrt(),), lambda x: (x.sqrt(),), values(8)) == ["output"]


def test_draws_of_the_same_random_state_are_equal() -> None:
    draw: Function = lambda x: (x + torch.rand_like(x),)     # noqa: E731 - the same function on both sides
    assert kinds(draw, draw, values(4)) == []


def test_inputs_that_share_memory_share_it_in_the_copies() -> None:
    def write(x: torch.Tensor, view: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        return (view * 1,)

    x = values(4)
    copies = Snapshot([x, x[1:]]).copies().arguments
    assert torch.equal(write(*copies)[0], x[1:] + 1)
