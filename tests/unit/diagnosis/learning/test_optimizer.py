"""TT408, TT409, TT412: the steps of the optimizer in a hand-made training."""

from tests.unit.diagnosis.learning.samples import INF, a_training, findings_of
from torchtriage.findings.model import Severity


def test_updates_out_of_range_are_reported_per_group() -> None:
    finding = findings_of(a_training(update_ratio__actor=[0.01] * 25 + [0.5] * 5))["TT408"]
    assert finding.title.startswith("one update changes actor by 0.5")
    assert "by about 500x" in findings_of(a_training(update_ratio__actor=[0.5] * 30))["TT408"].fix.text
    assert list(findings_of(a_training(update_ratio__critic=[1e-9] * 30))) == ["TT409"]


def test_large_first_updates_of_weights_that_start_at_zero_are_not_reported() -> None:
    assert findings_of(a_training(update_ratio__lora=[INF] + [1 / step for step in range(1, 60)])) == {}


def test_many_skipped_steps_are_reported_and_calibration_is_not() -> None:
    calibration = [min(step, 12) for step in range(400)]
    assert findings_of(a_training(scaler__skipped_total=calibration)) == {}
    finding = findings_of(a_training(scaler__skipped_total=[step // 10 for step in range(400)]))["TT412"]
    assert finding.severity is Severity.P2
    assert "GradScaler skipped 5 of 50 steps" in finding.title
    every_fourth = [step // 4 for step in range(400)]
    assert findings_of(a_training(scaler__skipped_total=every_fourth))["TT412"].severity is Severity.P1


def test_a_loss_scale_below_one_is_reported() -> None:
    assert findings_of(a_training(scaler__scale=[4.0, 2.0, 1.0, 0.5]))["TT412"].severity is Severity.P1


def test_a_first_update_that_replaces_the_weights_is_reported_if_the_loss_grows() -> None:
    ratios = {"update_ratio__all": [6.0] + [0.05] * 30}
    assert "6 times their norm" in findings_of(a_training(loss=[1.0] + [40.0] * 30, **ratios))["TT408"].title
    assert "TT408" not in findings_of(a_training(loss=[1.0] + [0.8] * 30, **ratios))
    assert "TT408" not in findings_of(a_training(**ratios))
