"""NaN and Inf in weights, gradients and loss are reported by name, in one read, whatever the shapes."""

import math

import pytest
import torch
from torch import nn

from tests.unit.telemetry.counting import host_reads
from torchtriage.telemetry import check_numerical_stability


def trained() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    model(torch.randn(4, 3)).sum().backward()
    return model


def test_a_healthy_model_is_stable() -> None:
    model = trained()
    seen = check_numerical_stability(model, torch.tensor(0.5))
    assert (seen.is_stable, seen.loss_is_finite, seen.loss) == (True, True, 0.5)
    assert (seen.nan_weights, seen.inf_weights, seen.nan_gradients, seen.inf_gradients) == ((), (), (), ())
    assert seen.weight_max_abs == {name: float(p.detach().abs().max()) for name, p in model.named_parameters()}
    assert seen.gradient_max_abs == {name: float(p.grad.abs().max()) for name, p in model.named_parameters()}
    assert (seen.max_weight, seen.max_gradient) == (
        max(seen.weight_max_abs.values()),
        max(seen.gradient_max_abs.values()),
    )


def test_non_finite_values_are_reported_by_name() -> None:
    model = trained()
    with torch.no_grad():
        model[0].weight[1, 1], model[2].bias[0] = math.nan, -math.inf
        model[0].bias.grad[2], model[2].weight.grad[0, 0] = math.inf, math.nan
    seen = check_numerical_stability(model)
    assert (seen.nan_weights, seen.inf_weights) == (("0.weight",), ("2.bias",))
    assert (seen.nan_gradients, seen.inf_gradients) == (("2.weight",), ("0.bias",))
    assert (seen.has_nan, seen.has_inf, seen.is_stable) == (True, True, False)
    assert math.isfinite(seen.max_weight)
    assert math.isfinite(seen.max_gradient)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (math.nan, (True, False)),
        (math.inf, (False, True)),
        (torch.tensor(math.nan), (True, False)),
        (torch.tensor([-math.inf]), (False, True)),
        (torch.tensor(1e25), (False, False)),
        (2.0, (False, False)),
        (None, (False, False)),
    ],
)
def test_loss_is_checked_too(loss: torch.Tensor | float | None, expected: tuple[bool, bool]) -> None:
    seen = check_numerical_stability(trained(), loss)
    assert (seen.has_nan, seen.has_inf) == expected
    assert seen.loss_is_finite == (not any(expected))


def test_a_loss_keeps_its_value() -> None:
    loss = (nn.Linear(2, 1)(torch.ones(1, 2)) ** 2).sum()      # with a graph behind it
    assert check_numerical_stability(trained(), loss).loss == loss.item()
    assert check_numerical_stability(trained()).loss is None


def test_loss_with_several_elements_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be one number, got shape \(4,\); give loss.mean\(\)"):
        check_numerical_stability(trained(), torch.ones(4))


def test_a_model_without_parameters_or_gradients_is_stable() -> None:
    assert check_numerical_stability(nn.ReLU()).is_stable
    seen = check_numerical_stability(nn.Linear(2, 2))
    assert (seen.is_stable, seen.max_gradient, dict(seen.gradient_max_abs)) == (True, 0.0, {})


def test_parameters_of_different_shapes_and_devices_are_checked() -> None:
    model = trained()
    with pytest.raises(RuntimeError, match="equal size"):
        torch.stack([p.data for p in model.parameters()]).isnan().any()
    assert check_numerical_stability(model).is_stable


def test_number_of_reads_is_independent_of_the_number_of_parameters() -> None:
    def reads(num_layers: int) -> list[str]:
        model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(num_layers)))
        model(torch.ones(1, 2)).sum().backward()
        return host_reads(lambda: check_numerical_stability(model, torch.tensor(1.0)))

    assert reads(2) == reads(30)
    assert reads(2).count("numpy") <= 1
