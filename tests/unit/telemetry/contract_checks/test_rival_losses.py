"""One of two networks with losses of their own wins."""

import pytest

from torchtriage.telemetry.contract_checks.rival_losses import RivalLosses


def after(first: tuple[float, float], last: tuple[float, float], *, num_optimizers: int = 2) -> RivalLosses:
    rivals = RivalLosses()
    for step in range(160):
        for optimizer, loss in enumerate(last if step > 20 else first):
            rivals.add(loss)
            rivals.step_ended(optimizer % num_optimizers, step)
    return rivals


@pytest.mark.parametrize(("first", "last", "is_found"), [
    ((1.4, 0.7), (0.01, 6.0), True),
    ((0.7, 1.4), (6.0, 0.01), True),
    ((1.4, 0.7), (0.7, 2.0), False),        # an ordinary GAN
    ((1.4, 0.7), (0.01, 0.01), False),      # both learn
    ((1.4, -0.7), (0.01, 6.0), False),      # a loss that may have any sign
])
def test_one_loss_that_vanishes_while_the_other_rises(
    first: tuple[float, float], last: tuple[float, float], is_found: bool,
) -> None:
    assert bool(after(first, last).broken) == is_found


def test_two_losses_of_one_optimizer_are_no_rivals() -> None:
    assert not after((1.4, 0.7), (0.01, 6.0), num_optimizers=1).broken


def test_the_verdict_is_taken_back() -> None:
    rivals = after((1.4, 0.7), (0.01, 6.0))
    for step in range(200):
        for optimizer, loss in enumerate((1.2, 0.8)):
            rivals.add(loss)
            rivals.step_ended(optimizer, step)
    assert not rivals.broken
