"""What the graph behind a loss shows of mistakes next to it."""

import pytest
import torch
from torch.nn import functional

from torchtriage.telemetry.contract_checks.loss_graph import (
    broadcast_size,
    leaves,
    not_log_probabilities,
    operations_behind,
    probabilities_as_logits,
    sign_of_error,
)

LABELS = torch.tensor([0, 2, 1, 1])


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True) * 2


def test_a_tensor_that_is_nearer_to_the_loss_has_a_smaller_distance() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    operations = operations_behind(model(torch.randn(2, 4)).sum().grad_fn)
    distances = {id(leaf): distance for distance, leaf in leaves(operations)}
    assert distances[id(model[2].bias)] < distances[id(model[0].bias)]
    assert distances.keys() == {id(p) for p in model.parameters()}


@pytest.mark.parametrize(("loss", "activation"), [
    (lambda x: functional.cross_entropy(x.softmax(-1), LABELS), "softmax"),
    (lambda x: functional.cross_entropy(x.softmax(-1).float().view(4, 3), LABELS), "softmax"),
    (lambda x: torch.distributions.Categorical(logits=x.softmax(-1)).log_prob(LABELS).mean(), "softmax"),
    (lambda x: functional.binary_cross_entropy_with_logits(x.sigmoid(), torch.ones(4, 3)), "sigmoid"),
    (lambda x: functional.cross_entropy(x, LABELS), ""),
    (lambda x: functional.cross_entropy(x.log_softmax(-1), LABELS), ""),        # the same numbers
    (lambda x: functional.nll_loss(x.softmax(-1).log(), LABELS), ""),
    (lambda x: functional.cross_entropy(x.softmax(-1) @ torch.randn(3, 3), LABELS), ""),     # attention
    (lambda x: functional.binary_cross_entropy(x.sigmoid(), torch.ones(4, 3)), ""),
    (lambda x: functional.kl_div(x.log_softmax(-1), torch.full((4, 3), 1 / 3), reduction="batchmean"), ""),
])
def test_probabilities_in_the_place_of_logits_are_recognized(loss: object, activation: str) -> None:
    assert callable(loss)
    assert probabilities_as_logits(loss(logits(4, 3))) == activation


@pytest.mark.parametrize(("loss", "size"), [
    (lambda: (logits(5, 1) - torch.randn(5)).square().mean(), 5),
    (lambda: (torch.randn(5) - logits(5, 1)).abs().mean(), 5),
    (lambda: (logits(5) - torch.randn(5, 1)).square().mean(), 5),
    (lambda: functional.mse_loss(logits(5, 1), torch.randn(5)), 5),
    (lambda: functional.smooth_l1_loss(logits(5, 1), torch.randn(5)), 5),
    (lambda: (logits(5, 1) - torch.randn(5, 1)).square().mean(), 0),
    (lambda: (logits(5) - torch.randn(5)).square().mean(), 0),
    (lambda: (logits(5, 5) - torch.randn(5)).square().mean(), 0),
    (lambda: (logits(5, 1) - logits(5)).sigmoid().mean(), 0),       # pairs of predictions
    (lambda: (logits(4, 5, 1) - torch.randn(4, 1, 5)).abs().mean(), 0),     # quantiles
    (lambda: (logits(1, 1) - torch.randn(1)).square().mean(), 0),
])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_prediction_that_is_broadcast_over_its_targets_is_recognized(loss: object, size: int) -> None:
    assert callable(loss)
    assert broadcast_size(loss()) == size


@pytest.mark.parametrize(("loss", "given"), [
    (lambda x: functional.nll_loss(x.softmax(-1), LABELS), "probabilities"),
    (lambda x: functional.nll_loss(x, LABELS), "scores"),
    (lambda x: functional.nll_loss(x.log_softmax(0), LABELS), "scores"),
    (lambda x: functional.nll_loss(x.log_softmax(-1), LABELS), ""),
    (lambda x: functional.nll_loss((x.softmax(-1) + 1e-9).log(), LABELS), ""),
    (lambda x: functional.cross_entropy(x, LABELS), ""),
    (lambda x: functional.cross_entropy(x.reshape(2, 3, 2, 1), LABELS.reshape(2, 2, 1)), ""),
    (lambda x: x.square().mean(), ""),
])
def test_nll_loss_expects_log_probabilities(loss: object, given: str) -> None:
    assert callable(loss)
    assert not_log_probabilities(loss(logits(4, 3))) == given


@pytest.mark.parametrize(("loss", "sign"), [
    (lambda x: -functional.cross_entropy(x, LABELS), -1),
    (lambda x: 2 - 0.5 * functional.mse_loss(x, torch.ones(4, 3)), -1),
    (lambda x: functional.cross_entropy(x, LABELS) * -1 / 4, -1),
    (lambda x: x.square().mean() - functional.cross_entropy(x, LABELS), -1),
    (lambda x: functional.cross_entropy(x, LABELS), 1),
    (lambda x: -functional.cross_entropy(x, LABELS) * -0.5, 1),
    (lambda x: functional.cross_entropy(x, LABELS) - functional.mse_loss(x, torch.ones(4, 3)), 0),     # they differ
    (lambda x: functional.cross_entropy(x, LABELS) * x.mean(), 0),      # a factor that may have any sign
    (lambda x: -x.mean(), 0),       # a critic
])
def test_a_loss_that_falls_with_the_error_of_its_predictions_has_a_minus(loss: object, sign: int) -> None:
    assert callable(loss)
    assert sign_of_error(loss(logits(4, 3))) == sign
