"""TT401, TT402, TT403: NaN and Inf in the loss, the gradients or the weights of a hand-made training."""

import pytest

from tests.unit.diagnosis.learning.samples import INF, NAN, a_training, findings_of, of_series
from torchtriage.findings.model import Finding, OwnerKind, SampledValue, Severity


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_non_finite_loss_is_reported_with_its_step(value: float) -> None:
    finding = findings_of(a_training(loss=[1.0, 0.9, value, 0.8]))["TT401"]
    assert (finding.severity, finding.owner.kind, finding.steps) == (Severity.P0, OwnerKind.YOU, (3,))
    assert "(step 3)" in finding.title
    assert SampledValue(text="0.9", number=0.9, step=2) in finding.evidence.values


def test_a_non_finite_value_loss_is_a_non_finite_loss() -> None:
    assert list(findings_of(a_training(ppo__value_loss=[1.0, NAN]))) == ["TT401"]


def test_nan_in_a_gradient_is_reported_per_tensor() -> None:
    training = a_training(grad_nan__fc=[0, 0, 7, 0], grad_nan__out=[0, 0, 1, 0], grad_norm=[1, 1, NAN, 1])
    finding = findings_of(training)["TT402"]
    assert finding.title == "7 NaN in the gradient of fc and 1 more (step 3)"
    assert finding.severity is Severity.P0
    assert "in fc, out" in finding.evidence.notes[0]


def test_non_finite_gradients_are_milder_if_the_weights_stay_finite() -> None:
    finding = findings_of(a_training(grad_inf__fc=[0, 2, 0, 0], weight_norm__fc=[1.0, 1.1, 1.2, 1.3]))["TT402"]
    assert finding.severity is Severity.P2


def test_a_step_that_grad_scaler_skipped_is_not_reported() -> None:
    norms = [1.0, INF, 1.0, 1.0]
    assert "TT402" in findings_of(a_training(grad_norm=norms, scaler__skipped_total=[0, 0, 0, 0]))
    assert findings_of(a_training(grad_norm=norms, scaler__skipped_total=[0, 1, 1, 1])) == {}


@pytest.mark.parametrize(("loss", "gradient", "weight", "code", "words"), [
    ([1, NAN, NAN], [0, 3, 3], [0, 0, 3], "TT401", "It comes from the forward pass or the data"),
    ([1, 1, NAN], [0, 3, 3], [0, 0, 3], "TT402", "It comes from the backward pass"),
    ([1, 1, NAN], [0, 0, 3], [0, 0, 3], "TT403", "It comes from the preceding update"),
])
def test_the_first_non_finite_quantity_is_the_origin_and_the_others_are_folded(
    loss: list[float], gradient: list[float], weight: list[float], code: str, words: str,
) -> None:
    findings = findings_of(a_training(loss=loss, grad_nan__fc=gradient, weight_nan__fc=weight))
    assert list(findings) == [code]
    assert words in findings[code].cause
    assert len(findings[code].evidence.folded) == 2


@pytest.mark.parametrize(("series", "words"), [
    ({}, "neither the weights nor the loss were recorded"),
    ({"weight_norm": [1.0, 1.0]}, "the loss was not recorded"),
    ({"loss": [1.0, 1.0]}, "the weights were not recorded"),
])
def test_the_origin_is_unknown_unless_all_quantities_were_recorded(series: dict[str, list[float]], words: str) -> None:
    cause = findings_of(a_training(grad_norm=[1.0, NAN], **series))["TT402"].cause
    assert f"First seen in the gradients at step 2; its origin is unknown: {words}" in cause


def test_nan_long_after_another_nan_is_a_separate_finding() -> None:
    points = {
        "loss": [(step, NAN if step == 2 else 1.0) for step in range(1, 100)],
        "grad_nan/fc": [(step, float(step == 90)) for step in range(1, 100)],
    }
    assert set(findings_of(of_series(points))) == {"TT401", "TT402"}


def looks(*, bad: int = 260, before: int = 240) -> dict[str, list[tuple[int, float]]]:
    """Loss, gradient and weight, which are all finite in one look and NaN in the next one."""
    healthy = [(step, 1.0) for step in range(20, before + 1, 20)]
    return {name: [*healthy, (bad, NAN)] for name in ("loss", "grad_norm/fc", "weight_norm/fc")}


def test_no_order_is_stated_between_two_looks() -> None:
    findings = findings_of(of_series(looks()))
    cause = next(iter(findings.values())).cause
    assert "in the loss at step 260 (finite at step 240)" in cause
    assert "Which was first between these looks was not observed" in cause
    assert not any("comes from" in finding.cause for finding in findings.values())
    assert not any("log_softmax" in finding.fix.text for finding in findings.values())


@pytest.mark.parametrize(("fact", "code", "words"), [
    ({"num_bad_weights": 0}, "TT401", "it comes from its forward pass or its data"),
    ({"num_bad_weights": 1, "bad_weights": ["fc"], "was_gradient_finite": False}, "TT402", "a gradient was first"),
    ({"num_bad_weights": 1, "bad_weights": ["fc"], "was_gradient_finite": True}, "TT403", "an update was first"),
])
def test_the_origin_is_the_one_that_the_test_of_every_loss_found(
    fact: dict[str, object], code: str, words: str,
) -> None:
    facts = {"non_finite_loss": {"step": 251, "last_finite": 250, "num_weights": 4, **fact}}
    findings = findings_of(of_series(looks(), facts=facts))
    assert list(findings) == [code]
    assert "step 251 is the first bad one" in findings[code].cause
    assert words in findings[code].cause


def test_the_origin_stays_open_without_averages_of_the_gradients() -> None:
    facts = {"non_finite_loss": {
        "step": 251, "last_finite": 250, "num_weights": 4, "num_bad_weights": 1, "bad_weights": ["fc"],
    }}
    finding = next(iter(findings_of(of_series(looks(), facts=facts)).values()))
    assert "whether a gradient or an update was first was not observed" in finding.cause
    assert "torchtriage replay" in finding.fix.text


GROWTH = [10.0, 30.0, 4e3, 5e8, 8e24]


def diverging(**extra: list[float]) -> dict[str, Finding]:
    """The loss grows until it overflows at step 6."""
    weights = [1.0, 2.0, 30.0, 1e4, 1e12, 1e30, NAN]
    return findings_of(a_training(
        loss=[*GROWTH, INF, NAN], grad_norm__fc=[1, 5, 1e3, 1e7, 1e19, NAN, NAN], weight_norm__fc=weights,
        facts={"telemetry": {"optimizer_lr": [0.9]}}, **extra,
    ))


def test_a_loss_that_grew_until_it_overflowed_is_no_matter_of_one_operation() -> None:
    [finding] = diverging().values()
    assert finding.code == "TT401"
    assert "the loss grew from 10 (step 1) to 8e+24 (step 5): the training diverged" in finding.cause
    assert finding.fix.text.startswith("lower the learning rate")
    assert "log_softmax" not in finding.fix.text


def test_an_exploding_gradient_is_the_cause_of_the_overflow_behind_it() -> None:
    [finding] = diverging(grad_norm=[1, 5, 1e3, 1e7, 1e19, NAN, NAN]).values()
    assert (finding.code, finding.severity) == ("TT404", Severity.P0)
    assert len(finding.evidence.folded) == 3
    assert finding.fix.text.startswith("lower the learning rate")


@pytest.mark.parametrize("losses", [[1.0, 0.9, 0.8, 0.9, 1e6], [1.0, 0.9, 0.95, 1.0, 1.1], [1e9, 1e8, 1e7, 1e6, 1e5]])
def test_a_single_jump_or_noise_before_nan_is_no_divergence(losses: list[float]) -> None:
    assert "diverged" not in findings_of(a_training(loss=[*losses, NAN]))["TT401"].cause
