"""TT4xx: what is told of gradients, weights and the loss of a hand-made training, and what is not."""

import math

import pytest

from tests.unit.diagnosis.learning_samples import a_training, found, noise, of_series
from torchtriage.findings.model import OwnerKind, SampledValue, Severity

NAN, INF = math.nan, math.inf


def test_a_recording_without_telemetry_has_no_finding_of_the_learning() -> None:
    assert found(a_training(step_seconds=[0.1] * 50)) == {}


def test_a_healthy_training_has_no_finding() -> None:
    losses = [2.0 * 0.99**step + value for step, value in enumerate(noise(400, 0.3, 0.1))]
    fine = a_training(
        loss=losses, grad_norm=noise(400, 0.8, 0.5), grad_norm_after_clip=[min(1.0, n) for n in noise(400, 0.8, 0.5)],
        update_ratio__all=[1e-3] * 400,
        grad_norm__a=noise(400, seed=1), grad_norm__b=noise(400, 0.01, seed=2), weight_norm__a=[5 + 0.001 * s for s in range(400)],
        grad_nan__a=[0.0] * 400, grad_zero_fraction__a=[0.3] * 400, grad_health=[1.0] * 400,
    )
    assert found(fine) == {}


# Numbers that are not finite

@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_loss_that_is_not_finite_is_told_with_its_step(value: float) -> None:
    finding = found(a_training(loss=[1.0, 0.9, value, 0.8]))["TT401"]
    assert (finding.severity, finding.owner.kind, finding.steps) == (Severity.P0, OwnerKind.YOU, (3,))
    assert "(step 3)" in finding.title
    assert SampledValue(text="0.9", number=0.9, step=2) in finding.evidence.values


def test_nan_in_a_gradient_is_told_by_tensor() -> None:
    finding = found(a_training(grad_nan__fc=[0, 0, 7, 0], grad_nan__out=[0, 0, 1, 0], grad_norm=[1, 1, NAN, 1]))["TT402"]
    assert finding.title == "7 NaN in the gradient of fc, and 1 more (step 3)"
    assert finding.severity is Severity.P0
    assert "in fc, out" in finding.evidence.notes[0]


def test_gradients_that_are_not_finite_while_weights_stay_finite_are_milder() -> None:
    finding = found(a_training(grad_inf__fc=[0, 2, 0, 0], weight_norm__fc=[1.0, 1.1, 1.2, 1.3]))["TT402"]
    assert finding.severity is Severity.P2


def test_a_step_that_grad_scaler_skipped_is_its_normal_work() -> None:
    norms = [1.0, INF, 1.0, 1.0]
    assert "TT402" in found(a_training(grad_norm=norms, scaler__skipped_total=[0, 0, 0, 0]))
    assert found(a_training(grad_norm=norms, scaler__skipped_total=[0, 1, 1, 1])) == {}


@pytest.mark.parametrize(("loss", "gradient", "weight", "code", "words"), [
    ([1, NAN, NAN], [0, 3, 3], [0, 0, 3], "TT401", "the forward pass or the data"),
    ([1, 1, NAN], [0, 3, 3], [0, 0, 3], "TT402", "the backward pass made it"),
    ([1, 1, NAN], [0, 0, 3], [0, 0, 3], "TT403", "the update before it wrote them"),
])
def test_the_first_that_is_not_finite_names_the_origin_and_tells_the_rest(
    loss: list[float], gradient: list[float], weight: list[float], code: str, words: str,
) -> None:
    findings = found(a_training(loss=loss, grad_nan__fc=gradient, weight_nan__fc=weight))
    assert list(findings) == [code]
    assert words in findings[code].cause
    assert len(findings[code].evidence.folded) == 2


def test_where_it_began_is_left_open_if_not_all_was_watched() -> None:
    assert "where it began is open, as weight and loss were not watched" in found(a_training(grad_norm=[1.0, NAN]))["TT402"].cause


def test_nan_that_comes_long_after_another_is_a_finding_of_its_own() -> None:
    points = {"loss": [(s, NAN if s == 2 else 1.0) for s in range(1, 100)], "grad_nan/fc": [(s, float(s == 90)) for s in range(1, 100)]}
    assert set(found(of_series(points))) == {"TT401", "TT402"}


# The norm of all gradients

def exploding(factor: float, at: int = 60, **more: list[float]) -> dict[str, list[float]]:
    norms = [0.7, 0.8, 0.9] * 34
    norms[at] = 0.8 * factor
    return {"grad_norm": norms, **more}


def test_an_exploding_gradient_is_told_with_median_and_a_bound_to_clip_at() -> None:
    finding = found(a_training(**exploding(40.0), loss=[1.0] * 60 + [7.0] + [1.0] * 41))["TT404"]
    assert (finding.severity, finding.steps) == (Severity.P2, (61,))
    assert finding.title == "gradient norm 32, 40x the median 0.8 of those before (step 61)"
    assert "The loss there was 7, its median before 1" in finding.cause
    assert "clip at about 1.6, twice the median 0.8" in finding.fix.text


def test_with_steps_in_between_that_nobody_looked_at_all_of_them_are_suspect() -> None:
    norms = [(10 * step, 60.0 if step == 30 else 0.8) for step in range(40)]
    assert "look at the batches of steps 291 to 300" in found(of_series({"grad_norm": norms}))["TT404"].fix.text
    assert "look at the batch of step 61;" in found(a_training(**exploding(40.0)))["TT404"].fix.text


def test_noise_and_the_first_steps_do_not_explode() -> None:
    assert found(a_training(grad_norm=noise(500, 0.8, 0.6))) == {}
    assert found(a_training(**exploding(40.0, at=10))) == {}


def test_an_explosion_that_clipping_caught_is_milder_and_says_so() -> None:
    values = exploding(40.0)
    values["grad_norm_after_clip"] = [min(1.0, norm) for norm in values["grad_norm"]]
    finding = found(a_training(**values))["TT404"]
    assert finding.severity is Severity.P3
    assert "clipping to 1 caught it" in finding.fix.text


def test_the_learning_rate_is_named_where_the_recording_has_it() -> None:
    assert "the learning rate (now 0.003)" in found(a_training(**exploding(40.0), facts={"optimizer_lr": [0.003, 0.003]}))["TT404"].fix.text


def test_an_absolute_bound_works_from_the_first_step_where_the_run_was_watched_with_one() -> None:
    assert found(a_training(grad_norm=[1, 60, 1])) == {}
    assert found(a_training(grad_norm=[1, 60, 1], facts={"learning_limits": {"grad_norm_max": 50.0}}))["TT404"].steps == (2,)


def test_gradients_that_are_clipped_at_most_steps_are_told() -> None:
    finding = found(a_training(grad_norm=[2.0] * 80, grad_norm_after_clip=[0.5] * 80))["TT413"]
    assert "from 2 to 0.5" in finding.title
    assert "the median before clipping is 2" in finding.fix.text
    assert found(a_training(grad_norm=[2.0] * 80, grad_norm_after_clip=[0.5, 2.0] * 40)) == {}


def test_a_norm_that_moves_away_for_long_has_drifted_and_a_spike_has_not() -> None:
    assert list(found(a_training(grad_norm=[1.0] * 100 + [4.0] * 60))) == ["TT410"]
    assert found(a_training(grad_norm=[1.0] * 100 + [4.0] * 3 + [1.0] * 57)) == {}


def test_health_that_falls_for_long_has_drifted() -> None:
    assert list(found(a_training(grad_health=[1.0] * 100 + [0.2] * 60))) == ["TT411"]


def test_drift_is_taken_as_given_where_it_is_recorded() -> None:
    assert list(found(a_training(grad_norm=[1.0] * 50, grad_norm_drift=[0.9] * 50))) == ["TT410"]
    assert found(a_training(grad_norm=[1.0] * 100 + [4.0] * 60, grad_norm_drift=[0.0] * 160)) == {}


# Tensors

def test_gradients_that_vanish_in_a_tenth_of_the_tensors_are_told() -> None:
    norms = {f"grad_norm__layer{n}": [1e-9 if n < 2 else 0.5] * 10 for n in range(10)}
    finding = found(a_training(**norms))["TT405"]
    assert finding.title.startswith("20% of 10 gradients have all but vanished, layer0 to 1e-09")


def test_one_tensor_of_many_may_vanish() -> None:
    assert found(a_training(**{f"grad_norm__layer{n}": [1e-9 if n == 0 else 0.5] * 10 for n in range(11)})) == {}


def test_a_gradient_of_zeros_is_told_once_it_lasts() -> None:
    assert found(a_training(grad_norm__a=[1, 0, 0, 0, 0, 1], grad_norm__b=[1.0] * 6)) == {}
    finding = found(a_training(grad_norm__a=[1.0] + [0.0] * 9, grad_norm__b=[1.0] * 10))["TT406"]
    assert finding.title == "the gradient of a is zero everywhere (step 6; 5 times, steps 6 to 10)"


def test_dead_tensors_are_named_in_the_fingerprint_so_that_a_new_one_is_not_accepted_with_the_old() -> None:
    marks = {found(a_training(**{f"grad_norm__{name}": [0.0] * 10}))["TT406"].fingerprint for name in ("head", "body")}
    assert len(marks) == 2


def test_a_zero_fraction_of_one_is_a_gradient_of_zeros_too() -> None:
    assert list(found(a_training(grad_zero_fraction__a=[1.0] * 8))) == ["TT406"]


def test_tensor_norms_that_are_a_thousand_times_apart_are_told() -> None:
    finding = found(a_training(grad_norm__a=[5.0] * 8, grad_norm__b=[0.001] * 8))["TT407"]
    assert "the gradient of a (5) is 5e+03x that of b (0.001)" in finding.title
    assert found(a_training(grad_norm__a=[5.0] * 8, grad_norm__b=[0.01] * 8)) == {}


def test_an_adaptive_optimizer_evens_unequal_gradients_out() -> None:
    apart = {"grad_norm__a": [5.0] * 8, "grad_norm__b": [0.001] * 8}
    assert found(a_training(**apart, facts={"optimizers": ["AdamW"]})) == {}
    assert list(found(a_training(**apart, facts={"optimizers": ["AdamW", "SGD"]}))) == ["TT407"]


def test_a_group_is_no_tensor() -> None:
    assert found(of_series({"grad_norm/group:actor": [(s, 5.0) for s in range(9)], "grad_norm/b": [(s, 0.001) for s in range(9)]})) == {}


def test_a_weight_that_stays_as_it_is_while_it_has_a_gradient_is_told() -> None:
    assert list(found(a_training(grad_norm__a=[1.0] * 30, weight_norm__a=[2.0] * 30))) == ["TT416"]
    assert found(a_training(grad_norm__a=[1.0] * 30, weight_norm__a=[2.0 + 1e-6 * s for s in range(30)])) == {}
    assert "TT416" not in found(a_training(grad_norm__a=[0.0] * 30, weight_norm__a=[2.0] * 30))
    assert found(a_training(weight_norm__a=[2.0] * 30)) == {}


def test_shares_of_a_gradient_are_told_once_they_last() -> None:
    assert list(found(a_training(grad_zero_fraction__a=[0.95] * 8))) == ["TT417"]
    assert list(found(a_training(grad_large_fraction__a=[0.2] * 8))) == ["TT418"]
    assert found(a_training(grad_large_fraction__a=[0.2, 0.2, 0.0] * 8)) == {}


def test_small_gradients_are_told_in_float16_only() -> None:
    assert list(found(a_training(grad_small_fraction__a=[0.95] * 8, facts={"grad_dtypes": ["float16"]}))) == ["TT419"]
    assert found(a_training(grad_small_fraction__a=[0.95] * 8, facts={"grad_dtypes": ["bfloat16"]})) == {}


# Updates and the scaler

def test_updates_out_of_range_are_told_by_group() -> None:
    assert found(a_training(update_ratio__actor=[0.01] * 25 + [0.5] * 5))["TT408"].title.startswith("one update changes actor by 0.5")
    assert "by about 500x" in found(a_training(update_ratio__actor=[0.5] * 30))["TT408"].fix.text
    assert list(found(a_training(update_ratio__critic=[1e-9] * 30))) == ["TT409"]


def test_weights_that_begin_at_zero_may_turn_over_at_first() -> None:
    assert found(a_training(update_ratio__lora=[INF] + [1 / step for step in range(1, 60)])) == {}


def test_a_storm_of_skipped_steps_is_told_and_the_calibration_is_not() -> None:
    calibration = [min(step, 12) for step in range(400)]
    assert found(a_training(scaler__skipped_total=calibration)) == {}
    finding = found(a_training(scaler__skipped_total=[step // 10 for step in range(400)]))["TT412"]
    assert finding.severity is Severity.P2
    assert "GradScaler skipped 5 of 50 steps" in finding.title
    assert found(a_training(scaler__skipped_total=[step // 4 for step in range(400)]))["TT412"].severity is Severity.P1


def test_a_scale_below_one_is_told() -> None:
    assert found(a_training(scaler__scale=[4.0, 2.0, 1.0, 0.5]))["TT412"].severity is Severity.P1


# The loss

def test_a_jump_of_the_loss_is_told() -> None:
    losses = noise(60, 1.0, 0.05)
    losses[40] = 9.0
    finding = found(a_training(loss=losses))["TT414"]
    assert finding.title.startswith("the loss jumped to 9;")
    assert finding.severity is Severity.P3


def test_jumps_far_below_the_first_loss_harm_nobody() -> None:
    assert found(a_training(loss=[5.0] * 5 + [1e-4] * 60 + [4e-3] + [1e-4] * 20)) == {}


def test_a_loss_that_never_comes_down_is_told_honestly_as_P3() -> None:
    finding = found(a_training(loss=noise(300, 2.3, 0.02)))["TT415"]
    assert (finding.severity, finding.steps) == (Severity.P3, (200, 250, 300))
    assert "has not come down in" in finding.title


def test_a_plateau_after_progress_or_late_progress_is_no_finding() -> None:
    assert found(a_training(loss=[2.3] * 5 + noise(300, 1.0, 0.02))) == {}
    assert found(a_training(loss=noise(250, 2.3, 0.02) + noise(150, 1.5, 0.02))) == {}


def test_the_loss_of_a_policy_is_not_meant_to_come_down() -> None:
    assert found(a_training(loss=noise(300, 2.3, 0.02), ppo__kl=[0.01] * 300)) == {}
