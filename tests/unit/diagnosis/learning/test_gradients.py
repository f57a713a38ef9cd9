"""TT404, TT405, TT407, TT410, TT411, TT413: the size of gradients in a hand-made training."""

import pytest

from tests.unit.diagnosis.learning.samples import a_training, findings_of, noise, of_series
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.findings.model import Severity


def explosion(factor: float, at: int = 60, **more: list[float]) -> dict[str, list[float]]:
    norms = [0.7, 0.8, 0.9] * 34
    norms[at] = 0.8 * factor
    return {"grad_norm": norms, **more}


# TT404

def test_an_exploding_gradient_is_reported_with_its_median_and_a_bound_for_clipping() -> None:
    finding = findings_of(a_training(**explosion(40.0), loss=[1.0] * 60 + [7.0] + [1.0] * 41))["TT404"]
    assert (finding.severity, finding.steps) == (Severity.P2, (61,))
    assert finding.title == "gradient norm 32, 40x the previous median of 0.8 (step 61)"
    assert "The loss at step 61 is 7; its previous median is 1" in finding.cause
    assert "clip at about 1.6, twice the previous median of 0.8" in finding.fix.text


def test_all_batches_since_the_observation_before_are_named() -> None:
    norms = [(10 * step, 60.0 if step == 30 else 0.8) for step in range(40)]
    assert "inspect the batches of steps 291 to 300" in findings_of(of_series({"grad_norm": norms}))["TT404"].fix.text
    assert "inspect the batch of step 61;" in findings_of(a_training(**explosion(40.0)))["TT404"].fix.text


def test_neither_noise_nor_the_first_steps_are_an_explosion() -> None:
    assert findings_of(a_training(grad_norm=noise(500, 0.8, 0.6))) == {}
    assert findings_of(a_training(**explosion(40.0, at=10))) == {}


def test_an_explosion_that_was_clipped_is_milder() -> None:
    values = explosion(40.0)
    values["grad_norm_after_clip"] = [min(1.0, norm) for norm in values["grad_norm"]]
    finding = findings_of(a_training(**values))["TT404"]
    assert finding.severity is Severity.P3
    assert "clipping reduced it to 1" in finding.fix.text


def test_the_fix_names_the_learning_rate_of_the_breach_under_a_schedule() -> None:
    series = explosion(40.0)
    number = len(next(iter(series.values())))
    rates = [0.1 if step < 61 else 0.003 for step in range(number)]
    training = a_training(**series, train__learning_rate=rates, facts={"optimizer_lr": [0.001]})
    assert "learning rate (0.1 at step 61)" in findings_of(training)["TT404"].fix.text


def test_the_fix_names_the_learning_rate_if_it_was_recorded() -> None:
    training = a_training(**explosion(40.0), facts={"optimizer_lr": [0.003, 0.003]})
    assert "the learning rate (now 0.003)" in findings_of(training)["TT404"].fix.text


def test_an_absolute_bound_applies_from_the_first_step() -> None:
    assert findings_of(a_training(grad_norm=[1, 60, 1])) == {}
    training = a_training(grad_norm=[1, 60, 1], facts={"learning_limits": {"grad_norm_max": 50.0}})
    assert findings_of(training)["TT404"].steps == (2,)


def test_an_explosion_after_which_the_loss_falls_is_milder() -> None:
    curriculum = [1.0] * 60 + [9.0 * 0.9 ** n for n in range(42)]
    finding = findings_of(a_training(**explosion(40.0), loss=curriculum))["TT404"]
    assert finding.severity is Severity.P3
    assert "The loss fell again afterwards" in finding.cause


def test_the_end_of_an_explosion_is_not_reported_below_its_limit() -> None:
    norms = [0.7, 0.8, 0.9] * 20 + [40.0] + [6.0] * 5
    for breach in breaches(a_training(grad_norm=norms)):
        assert breach.value > breach.limit


# TT405, TT407

@pytest.mark.parametrize("norm", [0.0, 1e-9])
def test_a_bias_without_effect_beside_a_healthy_weight_is_not_reported(norm: float) -> None:
    values = {"grad_norm__conv.weight": [0.5] * 40, "grad_norm__conv.bias": [norm] * 40}
    values |= {"weight_norm__conv.weight": noise(40), "weight_norm__conv.bias": [0.3] * 40}
    assert findings_of(a_training(**values)) == {}


def test_a_bias_that_vanishes_with_the_weight_of_its_layer_is_reported() -> None:
    values = {"grad_norm__conv.weight": [1e-9] * 10, "grad_norm__conv.bias": [1e-9] * 10, "grad_norm__out": [0.5] * 10}
    assert list(findings_of(a_training(**values))) == ["TT405"]


def test_gradients_of_a_converged_training_do_not_vanish() -> None:
    norms = {f"grad_norm__layer{n}": [0.5] * 40 + [1e-9] * 40 for n in range(4)}
    assert "TT405" in findings_of(a_training(**norms, loss=[2.0] * 80))
    assert findings_of(a_training(**norms, loss=[2.0] * 20 + [1e-4] * 60)) == {}


def test_gradients_that_vanish_in_a_tenth_of_the_tensors_are_reported() -> None:
    norms = {f"grad_norm__layer{n}": [1e-9 if n < 2 else 0.5] * 10 for n in range(10)}
    finding = findings_of(a_training(**norms))["TT405"]
    assert finding.title.startswith("20% of 10 gradients have nearly vanished; the norm of layer0 is 1e-09")


def test_one_vanishing_tensor_of_many_is_not_reported() -> None:
    norms = {f"grad_norm__layer{n}": [1e-9 if n == 0 else 0.5] * 10 for n in range(11)}
    assert findings_of(a_training(**norms)) == {}


def test_tensor_norms_that_differ_by_more_than_a_factor_of_1000_are_reported() -> None:
    finding = findings_of(a_training(grad_norm__a=[5.0] * 8, grad_norm__b=[0.001] * 8))["TT407"]
    assert "the gradient of a (5) is 5e+03x that of b (0.001)" in finding.title
    assert findings_of(a_training(grad_norm__a=[5.0] * 8, grad_norm__b=[0.01] * 8)) == {}


def test_unequal_gradients_are_not_reported_if_every_optimizer_is_adaptive() -> None:
    norms = {"grad_norm__a": [5.0] * 8, "grad_norm__b": [0.001] * 8}
    assert findings_of(a_training(**norms, facts={"optimizers": ["AdamW"]})) == {}
    assert list(findings_of(a_training(**norms, facts={"optimizers": ["AdamW", "SGD"]}))) == ["TT407"]


def test_the_norm_of_a_parameter_group_is_not_compared_with_tensors() -> None:
    group, tensor = [(step, 5.0) for step in range(9)], [(step, 0.001) for step in range(9)]
    assert findings_of(of_series({"grad_norm/group:actor": group, "grad_norm/b": tensor})) == {}


# TT410, TT411

def test_a_lasting_change_of_the_norm_is_a_drift_and_a_spike_is_not() -> None:
    assert list(findings_of(a_training(grad_norm=[1.0] * 100 + [4.0] * 60))) == ["TT410"]
    assert findings_of(a_training(grad_norm=[1.0] * 100 + [4.0] * 3 + [1.0] * 57)) == {}


def test_a_lasting_fall_of_gradient_health_is_a_drift() -> None:
    assert list(findings_of(a_training(grad_health=[1.0] * 100 + [0.2] * 60))) == ["TT411"]


def test_a_recorded_drift_takes_precedence_over_a_computed_one() -> None:
    assert list(findings_of(a_training(grad_norm=[1.0] * 50, grad_norm_drift=[0.9] * 50))) == ["TT410"]
    assert findings_of(a_training(grad_norm=[1.0] * 100 + [4.0] * 60, grad_norm_drift=[0.0] * 160)) == {}


def test_the_gradient_norm_of_a_policy_drifts_only_if_a_drift_was_recorded() -> None:
    moved, kl = [1.0] * 100 + [4.0] * 60, [0.01] * 160
    assert list(findings_of(a_training(grad_norm=moved))) == ["TT410"]
    assert findings_of(a_training(grad_norm=moved, ppo__kl=kl)) == {}
    assert list(findings_of(a_training(grad_norm=moved, grad_norm_drift=[0.9] * 160, ppo__kl=kl))) == ["TT410"]


# TT413

def test_gradients_that_are_clipped_at_most_steps_are_reported() -> None:
    finding = findings_of(a_training(grad_norm=[2.0] * 80, grad_norm_after_clip=[0.5] * 80))["TT413"]
    assert "from 2 to 0.5" in finding.title
    assert "the median before clipping is 2" in finding.fix.text
    assert findings_of(a_training(grad_norm=[2.0] * 80, grad_norm_after_clip=[0.5, 2.0] * 40)) == {}


def test_a_gradient_that_drifts_while_the_loss_falls_is_not_reported() -> None:
    norms = [1.0] * 60 + [3.0] * 60
    assert "TT410" in findings_of(a_training(grad_norm=norms, loss=[1.0] * 120))
    assert findings_of(a_training(grad_norm=norms, loss=[1.0] * 60 + [0.5] * 60)) == {}
    assert findings_of(a_training(grad_norm=[3.0] * 60 + [1.0] * 60, loss=[1.0] * 120)) == {}


def test_a_gradient_that_is_huge_from_the_start_is_reported_although_it_is_finite() -> None:
    finding = findings_of(a_training(grad_norm=[1e20] * 6))["TT404"]
    assert finding.title.startswith("gradient norm 1e+20 (step 1;")
    assert "TT404" not in findings_of(a_training(grad_norm=[1e9] * 6))


def test_the_bias_of_a_second_optimizer_without_effect_is_not_vanishing() -> None:
    norms = {"grad_norm__0.weight (Adam 2)": [1.0] * 9, "grad_norm__0.bias (Adam 2)": [1e-9] * 9}
    assert findings_of(a_training(**norms)) == {}
