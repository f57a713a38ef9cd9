"""Latent variables without information, equal units, layers that are cut off or frozen at random."""

import pytest
import torch

from torchtriage.telemetry.contract_checks.loss_graph import operations_behind
from torchtriage.telemetry.contract_checks.unused_units import (
    FIRST_UPDATE,
    LOOKS,
    NUM_CALLED,
    CutOffLayers,
    EqualUnits,
    Latents,
    frozen_at_random,
)


def latent_loss(spread_of_means: float, by_distribution: bool) -> torch.Tensor:
    mean = spread_of_means * torch.randn(32, 4)
    mean.requires_grad_()
    std = torch.zeros(32, 4, requires_grad=True).exp()
    if by_distribution:
        z = torch.distributions.Normal(mean, std).rsample()
    else:
        z = mean * 1.0 + std * torch.randn_like(std)
    return torch.nn.Linear(4, 8)(z).square().mean()


@pytest.mark.parametrize("by_distribution", [True, False])
@pytest.mark.parametrize(("spread", "is_found"), [(1e-3, True), (1.0, False)])
def test_latents_whose_means_do_not_vary_are_unused(spread: float, is_found: bool, by_distribution: bool) -> None:
    latents = Latents()
    for step in range(FIRST_UPDATE, FIRST_UPDATE + LOOKS):
        loss = latent_loss(spread, by_distribution)
        latents.look([node for _, node in operations_behind(loss.grad_fn)], step, step)
    assert bool(latents.broken) == is_found


def test_latents_that_become_active_take_the_verdict_back() -> None:
    latents = Latents()
    for number in range(LOOKS + 1):
        loss = latent_loss(1.0 if number == LOOKS else 0.0, by_distribution=False)
        latents.look([node for _, node in operations_behind(loss.grad_fn)], FIRST_UPDATE, number)
        assert bool(latents.broken) == (number == LOOKS - 1)


@pytest.mark.parametrize(("first", "is_found"), [(0.1, True), (0.0, False), (None, False)])
def test_units_that_begin_equal_and_stay_equal_are_found(first: float | None, is_found: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    if first is not None:
        for p in model.parameters():
            torch.nn.init.constant_(p, first)
    units, optimizer = EqualUnits(), torch.optim.SGD(model.parameters(), lr=0.1)
    units.begin(model.parameters())
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 6)), torch.randint(3, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert [w is model[0].weight or len(w) == 8 for w in units.equal()] == [True] * is_found


def test_a_layer_whose_output_is_received_without_its_gradient_is_counted_and_its_hook_is_removed() -> None:
    used, unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)     # the output of the second one goes nowhere
    layers = CutOffLayers()
    layers.begin([used, unused], frozenset(map(id, [*used.parameters(), *unused.parameters()])))
    assert layers.step_ended() is None      # of the step in which they were set
    for number in range(1, NUM_CALLED + 1):
        received = used(torch.randn(1, 2)).detach().flatten()
        other = unused(torch.randn(1, 2))
        layers.backward([received])
        assert other.requires_grad
        assert layers.step_ended() == (1 if number == NUM_CALLED else None)
    assert not used._forward_hooks
    assert not layers.is_open


@pytest.mark.parametrize(("frozen", "is_loaded", "is_found"), [
    (2, False, True),
    (4, False, True),
    (0, False, False),      # a backbone
    (2, True, False),
])
def test_a_layer_that_is_frozen_behind_trained_ones_is_found_at_its_first_values(
    frozen: int, is_loaded: bool, is_found: bool,
) -> None:
    layers = [torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)]
    model = torch.nn.Sequential(*layers)
    model[frozen].requires_grad_(False)
    if is_loaded:
        torch.nn.init.normal_(model[frozen].weight, std=0.2)
    held = {id(p): p for p in model.parameters()}
    expected = {id(model[frozen].weight)} if is_found else set()
    assert frozen_at_random(list(model.modules()), held) == expected


def test_weights_whose_memory_fsdp_took_are_not_read() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    weight.untyped_storage().resize_(0)
    units = EqualUnits()
    units.begin([weight])
    assert units.equal() == []
