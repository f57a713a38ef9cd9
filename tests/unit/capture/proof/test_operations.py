"""Results move by one rounding, exact operations do not; projections estimate distances."""

import math

import pytest
import torch

from torchtriage.capture.proof.arranged_draws import digest_of
from torchtriage.capture.proof.operations import Operations
from torchtriage.capture.proof.projection import Projector, loss_rows
from torchtriage.capture.torch_private.dispatch import dispatch_mode


def operations(rounding: int = 0) -> Operations:
    return Operations(rounding=rounding)


def test_a_sum_moves_by_about_one_rounding() -> None:
    torch.manual_seed(0)
    x = torch.rand(1000) - 0.5
    distances = []
    for seed in range(1, 6):        # a single sum may move by less than it is rounded to
        with dispatch_mode(operations(seed).run):
            moved, product = x.sum(), x * 3
        distances.append(abs(moved.item() - x.sum().item()))
    assert 0 < max(distances) < 1e-4
    relative = ((product - x * 3) / (x * 3)).abs()
    assert 0 < relative.max() <= 2.1 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", ["relu", "clone", "max", "neg"])
def test_an_exact_operation_stays_exact(name: str) -> None:
    x = torch.rand(100) - 0.5
    with dispatch_mode(operations(1).run):
        result = getattr(x, name)()
    assert torch.equal(result, getattr(x, name)())


def test_a_run_with_moved_results_trains_and_a_view_stays_a_view() -> None:
    net = torch.nn.Linear(4, 2)
    with dispatch_mode(operations(1).run):
        x = torch.ones(3, 4)
        x[0].mul_(2)
        net(x).pow(2).mean().backward()
    assert x[0, 0].item() == 2
    assert net.weight.grad is not None


def test_our_own_operations_are_neither_moved_nor_counted() -> None:
    own = operations(1)
    with dispatch_mode(own.run):
        torch.ones(3) + 1
        counted, own.is_paused = own.num_ops, True
        result = torch.full((3,), 0.1) + 0.2
    assert own.num_ops == counted == 2
    assert torch.equal(result, torch.full((3,), 0.1) + 0.2)


def test_projections_estimate_the_distance_of_two_tensors() -> None:
    x, projector = torch.rand(100_000, dtype=torch.float64), Projector()
    change = 1e-3 * (torch.rand(100_000, dtype=torch.float64) - 0.5)
    one, other = projector.row(x), projector.row(x + change)
    assert one[0] == pytest.approx(x.norm().item())
    estimate = math.sqrt(sum((a - b) ** 2 for a, b in zip(one[1:-1], other[1:-1], strict=True)) / 4)
    assert 0.2 < estimate / change.norm().item() < 3
    assert one[-1] == torch.finfo(torch.float64).eps


def test_a_permuted_tensor_has_other_projections() -> None:
    x, projector = torch.rand(64), Projector()
    assert projector.row(x)[1:-1] != projector.row(x.flip(0))[1:-1]


def test_the_value_of_a_loss_is_kept() -> None:
    assert loss_rows([torch.tensor(-2.5)], Projector())[0] == [-2.5, torch.finfo(torch.float32).eps]


def test_two_draws_of_a_shape_in_a_step_are_noted_after_the_first_step() -> None:
    seen = []
    own = operations()
    with dispatch_mode(own.run):
        for _ in range(2):
            torch.rand(3), torch.rand(3), torch.randn(3)
            own.drawn()
            seen.append((set(own.draw_pairs), own.repeats_shapes))
    assert seen == [(set(), False), ({digest_of("uniform", "[(3,)]")}, True)]


def test_clipping_is_seen_whether_or_not_it_changes_a_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    counts = []
    for clip in (
        lambda: torch.nn.utils.clip_grad_norm_([weight], 100.0),
        lambda: torch.nn.utils.clip_grad_value_([weight], 100.0),
        lambda: torch.linalg.vector_norm(weight.grad),
    ):
        own = operations()
        with dispatch_mode(own.run):
            clip()
        counts.append(own.num_clipping > 0)
    assert counts == [True, True, False]
