"""TT414, TT415, TT434: the course of the loss of a hand-made training."""

from tests.unit.diagnosis.learning.samples import a_training, findings_of, noise
from torchtriage.findings.model import Severity


def test_a_jump_of_the_loss_is_reported() -> None:
    losses = noise(60, 1.0, 0.05)
    losses[40] = 9.0
    finding = findings_of(a_training(loss=losses))["TT414"]
    assert finding.title.startswith("the loss jumped to 9;")
    assert finding.severity is Severity.P3


def test_the_heavy_tail_of_tiny_batches_is_not_a_jump() -> None:
    losses = [1.0, 1.1, 0.9, 1.0, 8.0] * 12
    assert findings_of(a_training(loss=[*losses, 20.0])) == {}
    assert "TT414" in findings_of(a_training(loss=[*losses, 40.0]))


def test_a_jump_far_below_the_first_loss_is_not_reported() -> None:
    assert findings_of(a_training(loss=[5.0] * 5 + [1e-4] * 60 + [4e-3] + [1e-4] * 20)) == {}


def test_a_loss_that_never_decreases_is_reported_as_P3() -> None:
    finding = findings_of(a_training(loss=noise(300, 2.3, 0.02)))["TT415"]
    assert (finding.severity, finding.steps) == (Severity.P3, (200, 250, 300))
    assert "has not clearly decreased in" in finding.title


def test_a_plateau_after_progress_or_late_progress_is_not_reported() -> None:
    assert findings_of(a_training(loss=[2.3] * 5 + noise(300, 1.0, 0.02))) == {}
    assert findings_of(a_training(loss=noise(250, 2.3, 0.02) + noise(150, 1.5, 0.02))) == {}


def test_the_loss_of_a_policy_is_neither_expected_to_decrease_nor_to_be_smooth() -> None:
    assert findings_of(a_training(loss=noise(300, 2.3, 0.02), ppo__kl=[0.01] * 300)) == {}
    jumped = [*noise(159), 60.0]
    assert "TT414" in findings_of(a_training(loss=jumped))
    assert findings_of(a_training(loss=jumped, ppo__kl=[0.01] * 160)) == {}


def test_a_loss_that_ends_far_above_its_start_is_reported() -> None:
    rising = findings_of(a_training(loss=[1.02 ** step for step in range(300)]))["TT434"]
    assert (rising.severity, rising.steps) == (Severity.P2, (150, 200, 250, 300))
    assert findings_of(a_training(loss=noise(50) + noise(150, 2.0)))["TT434"].severity is Severity.P3


def test_a_loss_that_comes_down_again_or_rises_within_its_noise_is_not_reported() -> None:
    assert "TT434" not in findings_of(a_training(loss=noise(50) + noise(150, 4.0) + noise(150, 0.5)))
    assert "TT434" not in findings_of(a_training(loss=noise(100, 1.0, 0.5) + noise(200, 1.4, 0.5)))
    assert "TT434" not in findings_of(a_training(loss=[1.02 ** step for step in range(300)], ppo__kl=[0.01] * 300))
