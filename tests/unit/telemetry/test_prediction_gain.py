"""Predictions compared with the best constant one, by losses as a program computes them."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from torchtriage.telemetry.contract_checks.prediction_gain import FIRST_UPDATE, PredictionGain

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def binary(prediction_NC: torch.Tensor, target_N: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(prediction_NC[:, 0], (target_N == 0).float())


def squared(prediction_NC: torch.Tensor, target_N: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(prediction_NC[:, 0], target_N.float())


def looks(loss: Loss, *, strength: float, num: int = 30) -> PredictionGain:
    """Predictions that depend on the targets by `strength`; 0 is no dependence."""
    torch.manual_seed(0)
    gain = PredictionGain()
    for _ in range(num):
        target_N = torch.randint(0, 3, (64,))
        logits_NC = 0.1 * torch.randn(64, 3) + strength * functional.one_hot(target_N, 3)
        if loss is squared:
            logits_NC = 0.1 * torch.randn(64, 3) + 1 + strength * (target_N[:, None] - 1)
        gain.look(loss(logits_NC.requires_grad_(), target_N))
    return gain


@pytest.mark.parametrize("loss", [functional.cross_entropy, binary, squared])
def test_predictions_without_use_of_the_inputs_are_no_gain(loss: Loss) -> None:
    verdict = looks(loss, strength=-0.5 if loss is binary else 0.0).verdict(FIRST_UPDATE)
    assert verdict is not None
    assert verdict.model > 0.95 * verdict.guess
    assert not verdict.was_better


@pytest.mark.parametrize("loss", [functional.cross_entropy, squared])
def test_predictions_that_are_a_little_better_are_a_gain(loss: Loss) -> None:
    assert looks(loss, strength=0.3).verdict(FIRST_UPDATE) is None


def test_there_is_no_verdict_early_or_from_few_looks() -> None:
    assert looks(functional.cross_entropy, strength=0.0).verdict(FIRST_UPDATE - 1) is None
    assert looks(functional.cross_entropy, strength=0.0, num=20).verdict(FIRST_UPDATE) is None


def test_weighted_losses_and_losses_per_sample_are_not_judged() -> None:
    def weighted(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, target, weight=torch.tensor([1.0, 2.0, 3.0]))

    def per_sample(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (functional.cross_entropy(logits, target, reduction="none") * torch.rand(64)).mean()

    for loss in (weighted, per_sample):
        assert looks(loss, strength=0.0).verdict(FIRST_UPDATE) is None


def test_one_of_two_losses_that_learns_is_enough() -> None:
    gain = PredictionGain()
    for _ in range(30):
        target_N = torch.randint(0, 3, (64,))
        noise_NC, known_NC = torch.randn(2, 64, 3)
        known_NC += 3 * functional.one_hot(target_N, 3)
        first, second = (functional.cross_entropy(one.requires_grad_(), target_N) for one in (noise_NC, known_NC))
        gain.look(first + second)
    assert gain.verdict(FIRST_UPDATE) is None


def test_targets_that_are_all_the_same_are_not_judged() -> None:
    gain = PredictionGain()
    for _ in range(30):
        gain.look(functional.binary_cross_entropy_with_logits(torch.randn(8, 1).requires_grad_(), torch.ones(8, 1)))
    assert gain.verdict(FIRST_UPDATE) is None
