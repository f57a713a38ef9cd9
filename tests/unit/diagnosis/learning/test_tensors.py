"""TT406, TT416 to TT419: the gradient and the weight of a single tensor in a hand-made training."""

import pytest

from tests.unit.diagnosis.learning.samples import INF, a_training, findings_of
from torchtriage.diagnosis.learning.rules.tensors import float32


def test_a_gradient_of_zeros_is_reported_once_it_lasts() -> None:
    assert findings_of(a_training(grad_norm__a=[1, 0, 0, 0, 0, 1], grad_norm__b=[1.0] * 6)) == {}
    finding = findings_of(a_training(grad_norm__a=[1.0] + [0.0] * 9, grad_norm__b=[1.0] * 10))["TT406"]
    assert finding.title == "the gradient of a is zero everywhere (step 6; 5 times in steps 6 to 10)"


def test_a_gradient_that_comes_later_is_not_reported() -> None:
    assert findings_of(a_training(grad_norm__a=[0.0] * 20 + [1.0] * 9, grad_norm__b=[1.0] * 29)) == {}


def test_a_tensor_without_a_learning_rate_may_stay_as_it_is() -> None:
    values = {"grad_norm__a": [1.0] * 30, "weight_norm__a": [2.0] * 30}
    assert findings_of(a_training(facts={"without_rate": ["a"]}, **values)) == {}


def test_another_dead_tensor_has_another_fingerprint() -> None:
    fingerprints = set()
    for name in ("head", "body"):
        fingerprints.add(findings_of(a_training(**{f"grad_norm__{name}": [0.0] * 10}))["TT406"].fingerprint)
    assert len(fingerprints) == 2


def test_a_zero_fraction_of_one_is_a_gradient_of_zeros() -> None:
    assert list(findings_of(a_training(grad_zero_fraction__a=[1.0] * 8))) == ["TT406"]


def test_a_weight_that_does_not_change_although_it_has_a_gradient_is_reported() -> None:
    assert list(findings_of(a_training(grad_norm__a=[1.0] * 30, weight_norm__a=[2.0] * 30))) == ["TT416"]
    growing = [2.0 + 1e-6 * step for step in range(30)]
    assert findings_of(a_training(grad_norm__a=[1.0] * 30, weight_norm__a=growing)) == {}
    assert "TT416" not in findings_of(a_training(grad_norm__a=[0.0] * 30, weight_norm__a=[2.0] * 30))
    assert findings_of(a_training(weight_norm__a=[2.0] * 30)) == {}


def test_fractions_of_a_gradient_are_reported_once_they_last() -> None:
    assert list(findings_of(a_training(grad_zero_fraction__a=[0.95] * 8))) == ["TT417"]
    assert list(findings_of(a_training(grad_large_fraction__a=[0.2] * 8))) == ["TT418"]
    assert findings_of(a_training(grad_large_fraction__a=[0.2, 0.2, 0.0] * 8)) == {}


def test_small_gradients_are_reported_for_float16_only() -> None:
    small = [0.95] * 8
    assert list(findings_of(a_training(grad_small_fraction__a=small, facts={"grad_dtypes": ["float16"]}))) == ["TT419"]
    assert findings_of(a_training(grad_small_fraction__a=small, facts={"grad_dtypes": ["bfloat16"]})) == {}


@pytest.mark.parametrize(("value", "stored"), [(0.1, 0.10000000149011612), (1e300, INF), (0.0, 0.0)])
def test_a_number_is_rounded_as_a_recording_rounds_it(value: float, stored: float) -> None:
    assert float32(value) == stored


def test_the_cause_of_a_zero_gradient_is_told_by_when_it_began_and_by_the_weight() -> None:
    late = findings_of(a_training(grad_norm__a=[1.0] * 9 + [0.0] * 9))["TT406"]
    assert "It was not zero before step 10" in late.cause
    assert "a step that was too large" in late.fix.text
    zeros = [0.0] * 9
    blank = findings_of(a_training(grad_norm__a=zeros, grad_norm__b=zeros, weight_norm__a=zeros, weight_norm__b=zeros))
    assert "kaiming_uniform_" in blank["TT406"].fix.text
    assert "detach()" in findings_of(a_training(grad_norm__a=zeros, weight_norm__a=[1.0] * 9))["TT406"].fix.text


def test_gradients_that_become_zero_after_large_updates_are_folded_into_these() -> None:
    ratios = {"update_ratio__all": [0.5] * 60}
    late = findings_of(a_training(grad_norm__a=[1.0] * 40 + [0.0] * 20, **ratios))
    assert "TT406" not in late
    assert any("TT406" in line for line in late["TT408"].evidence.folded)
    early = findings_of(a_training(grad_norm__a=[1.0] * 5 + [0.0] * 55, **ratios))
    assert "TT406" in early
