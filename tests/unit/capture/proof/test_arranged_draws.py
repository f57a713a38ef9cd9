"""Arranged draws depend on their key alone, and have the distribution that the operator asks for."""

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch.nn import functional

from torchtriage.capture.proof.arranged_draws import (
    BY_MODULE,
    BY_ROW,
    BY_STEP,
    MIRRORED,
    SWAPPED,
    ArrangedDraws,
    digest_of,
)
from torchtriage.capture.proof.operations import Operations
from torchtriage.capture.torch_private.dispatch import dispatch_mode

T = TypeVar("T")


def drawn(make: Callable[[], T], arrangement: str = BY_STEP, step: int = 0) -> T:
    with dispatch_mode(Operations(rounding=0, draws=ArrangedDraws(arrangement, lambda: step)).run):
        return make()


def test_draws_do_not_depend_on_other_draws() -> None:
    first = drawn(lambda: (torch.randn(4), torch.randn(4), torch.rand(20)))
    second = drawn(lambda: (torch.rand(7), torch.randint(0, 9, (3,)), torch.rand(20), torch.randn(4), torch.randn(4)))
    assert torch.equal(first[0], second[3])
    assert torch.equal(first[1], second[4])
    assert torch.equal(first[2], second[2])
    assert not torch.equal(first[0], first[1])


def test_two_draws_of_a_shape_can_be_exchanged_and_those_of_weights_cannot() -> None:
    def make() -> tuple[torch.Tensor, ...]:
        weights = torch.nn.Parameter(torch.empty(4)), torch.nn.Parameter(torch.empty(4))
        with torch.no_grad():
            return *(weight.normal_().clone() for weight in weights), torch.randn(4), torch.randn(4), torch.rand(4)

    first, second = drawn(make), drawn(make, f"{SWAPPED}:1,{digest_of('normal', '[(4,)]')}")
    assert torch.equal(torch.stack(first)[[0, 1, 3, 2, 4]], torch.stack(second))


def test_modules_that_run_in_another_order_draw_the_same() -> None:
    net = torch.nn.ModuleList(torch.nn.Dropout(0.5) for _ in range(3))
    x = torch.ones(30)
    first = drawn(lambda: [drop(x) for drop in net], BY_MODULE)
    second = drawn(lambda: [drop(x) for drop in reversed(net)], BY_MODULE)
    assert torch.equal(torch.stack(first), torch.stack(second[::-1]))
    assert not torch.equal(first[0], first[1])
    assert torch.equal(drawn(lambda: torch.rand(4), BY_MODULE), drawn(lambda: torch.rand(4)))


def test_draws_differ_from_step_to_step_and_leave_the_generator() -> None:
    state = torch.get_rng_state()
    assert not torch.equal(drawn(lambda: torch.randn(4), step=1), drawn(lambda: torch.randn(4), step=2))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("make", "mean", "deviation"), [
    (lambda: torch.randn(100_000), 0.0, 1.0),
    (lambda: torch.empty(100_000).normal_(3.0, 0.5), 3.0, 0.5),
    (lambda: torch.normal(torch.full((100_000,), 2.0), 0.1), 2.0, 0.1),
    (lambda: torch.rand(100_000), 0.5, 12 ** -0.5),
    (lambda: torch.empty(100_000).uniform_(-1, 3), 1.0, 4 * 12 ** -0.5),
    (lambda: torch.bernoulli(torch.full((100_000,), 0.3)), 0.3, 0.21 ** 0.5),
    (lambda: functional.dropout(torch.ones(100_000), 0.2), 1.0, 0.5),
    (lambda: torch.randint(2, 5, (100_000,)).float(), 3.0, (2 / 3) ** 0.5),
    (lambda: torch.native_dropout(torch.ones(100_000), 0.2, True)[0], 1.0, 0.5),
])
@pytest.mark.parametrize("arrangement", [BY_STEP, MIRRORED, BY_ROW, SWAPPED, BY_MODULE])
def test_values_have_their_distribution(
    make: Callable[[], torch.Tensor], mean: float, deviation: float, arrangement: str,
) -> None:
    values = drawn(make, arrangement)
    assert values.mean().item() == pytest.approx(mean, abs=0.02 * deviation)
    assert values.std().item() == pytest.approx(deviation, rel=0.02)
    assert abs(torch.corrcoef(torch.stack([values[1:], values[:-1]]))[0, 1].item()) < 0.02


def test_another_dropout_rate_gives_another_mask_of_the_same_draws() -> None:
    def kept(rate: float) -> torch.Tensor:
        return drawn(lambda: functional.dropout(torch.ones(1000), rate) > 0)

    assert torch.equal(kept(0.1), kept(0.1))
    assert not torch.equal(kept(0.1), kept(0.2))


def test_a_dropout_written_by_hand_has_the_mask_of_the_module() -> None:
    ones = torch.ones(30, 8)
    assert torch.equal(drawn(lambda: functional.dropout(ones, 0.25) > 0), drawn(lambda: torch.rand_like(ones) < 0.75))
    above = drawn(lambda: torch.rand_like(ones) > 0.25, MIRRORED)
    assert torch.equal(drawn(lambda: functional.dropout(ones, 0.25) > 0, MIRRORED), above)


def test_rows_are_the_same_drawn_at_once_or_one_by_one() -> None:
    at_once = drawn(lambda: torch.randn(6, 3, 5), BY_ROW)
    one_by_one = drawn(lambda: torch.stack([torch.randn(3, 5) for _ in range(6)]), BY_ROW)
    assert torch.equal(at_once, one_by_one)
    assert not torch.equal(at_once[0], at_once[1])


def test_the_digest_of_the_keys_depends_on_the_step_and_not_on_the_order() -> None:
    def keys(*shapes: int, step: int = 0) -> int:
        draws = ArrangedDraws(BY_STEP, lambda: step)
        with dispatch_mode(Operations(rounding=0, draws=draws).run):
            for shape in shapes:
                torch.rand(shape)
        return draws.keys

    assert keys(3, 4) == keys(4, 3)
    assert len({keys(3, 4), keys(3, 3), keys(3, 4, step=1)}) == 3
