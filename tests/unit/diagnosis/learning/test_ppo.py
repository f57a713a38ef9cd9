"""TT601 to TT614: the updates of PPO in a hand-made training."""

from typing import Any

import pytest

from tests.unit.diagnosis.learning.samples import INF, NAN, a_training, findings_of
from torchtriage.findings.model import Severity
from torchtriage.recording.events import Anomaly


def test_a_healthy_policy_has_no_finding() -> None:
    training = a_training(
        lstm__h_rms=[0.4] * 60, lstm__h_rms_max=[0.6] * 60, lstm__c_rms_max=[2.0] * 60, lstm__has_nan=[0.0] * 60,
        ppo__ratio_max=[1.4] * 60, ppo__ratio_min=[0.6] * 60, ppo__first_ratio_deviation=[1e-6] * 60,
        ppo__kl=[0.012] * 60, ppo__entropy=[0.7] * 60, ppo__value_loss=[0.8] * 60,
        ppo__explained_variance=[NAN] + [0.3] * 59, ppo__clip_fraction=[0.2] * 60, ppo__advantage_std=[1.0] * 60,
        ppo__early_stopped=[0.0, 1.0] * 30, ppo__updates_skipped_total=[0.0] * 60,
    )
    assert findings_of(training) == {}


# TT601 to TT604

@pytest.mark.parametrize("values", [
    {"ppo__ratio_max": [1.0, NAN], "ppo__ratio_min": [0.5, 0.01]}, {"ppo__kl": [0.0, INF]},
    {"ppo__entropy": [0.5, NAN]}, {"ppo__advantage_std": [1.0, NAN]}, {"ppo__first_ratio_deviation": [0.0, INF]},
])
def test_a_non_finite_quantity_is_reported_as_such_only(values: dict[str, list[float]]) -> None:
    findings = findings_of(a_training(**values))
    assert list(findings) == ["TT601"]
    assert (findings["TT601"].severity, findings["TT601"].steps) == (Severity.P0, (2,))


def test_ratios_out_of_range_are_reported_unless_they_are_rare() -> None:
    assert list(findings_of(a_training(ppo__ratio_max=[1.0, 6.0, 7.5, 6.0]))) == ["TT602"]
    assert "up to 7.5" in findings_of(a_training(ppo__ratio_max=[1.0, 6.0, 7.5, 6.0]))["TT602"].title
    assert list(findings_of(a_training(ppo__ratio_min=[0.05] * 3 + [0.5] * 50))) == ["TT603"]
    rare = {"ppo__ratio_max": [6.0] * 2 + [1.0] * 50, "ppo__ratio_min": [0.05] * 3 + [0.5] * 80}
    assert findings_of(a_training(**rare)) == {}


def test_the_first_ratio_may_differ_from_one_by_rounding_only() -> None:
    half = {"autocast_dtype": "bfloat16"}
    assert findings_of(a_training(ppo__first_ratio_deviation=[0.01]))["TT604"].severity is Severity.P1
    assert findings_of(a_training(ppo__first_ratio_deviation=[0.01], facts=half)) == {}
    assert list(findings_of(a_training(ppo__first_ratio_deviation=[0.1], facts=half))) == ["TT604"]


# TT605

def test_a_high_value_loss_is_reported_with_the_explained_variance() -> None:
    training = a_training(ppo__value_loss=[1.0, 6.0, 5.5, 5.5], ppo__explained_variance=[0.2, -0.4, 0.0, 0.0])
    title = "value loss 6, explained variance -0.4 (step 2; 3 times in steps 2 to 4)"
    assert findings_of(training)["TT605"].title == title
    assert list(findings_of(a_training(ppo__bellman_error=[1.0, 6.0, 6.0, 6.0]))) == ["TT605"]


def test_the_first_updates_of_a_critic_that_learns_later_are_not_reported() -> None:
    assert findings_of(a_training(ppo__value_loss=[13.0] * 8 + [1.0] * 20)) == {}
    assert list(findings_of(a_training(ppo__value_loss=[13.0] * 28))) == ["TT605"]        # it never learns


def test_a_value_loss_that_is_high_occasionally_is_not_a_collapse() -> None:
    start = [13.0] * 8 + [1.0] * 5
    assert findings_of(a_training(ppo__value_loss=start + ([9.0, 9.0] + [1.0] * 5) * 4)) == {}
    finding = findings_of(a_training(ppo__value_loss=start + [9.0] * 3 + [1.0] * 5 + [9.0] * 2))["TT605"]
    assert finding.steps == (14, 15, 16)


def test_a_critic_that_explains_the_returns_has_not_collapsed_whatever_their_scale() -> None:
    assert findings_of(a_training(ppo__value_loss=[900.0] * 5, ppo__explained_variance=[0.9] * 5)) == {}
    assert findings_of(a_training(ppo__value_loss=[900.0] * 5, ppo__returns_std=[20.0] * 5)) == {}
    assert list(findings_of(a_training(ppo__value_loss=[9000.0] * 5, ppo__returns_std=[20.0] * 5))) == ["TT605"]


def test_a_critic_that_still_predicts_zero_has_not_collapsed() -> None:
    def training(scale: float) -> Any:
        return a_training(
            ppo__value_loss=[125.0 * scale**2] * 5, ppo__returns_std=[4.0 * scale] * 5,
            ppo__returns_mean=[10.0 * scale] * 5,
        )

    assert findings_of(training(1.0)) == {}
    assert list(findings_of(training(1000.0))) == ["TT605"]


def test_a_collapse_is_not_reported_if_the_environment_was_solved() -> None:
    values = {"ppo__value_loss": [1.0] + [9.0] * 8, "facts": {"return_threshold": 475.0}}
    assert findings_of(a_training(rollout__ep_rew_mean=[20.0] * 8 + [480.0], **values)) == {}
    assert list(findings_of(a_training(rollout__ep_rew_mean=[20.0] * 7 + [480.0, 9.0], **values))) == ["TT605"]


def test_explained_variance_alone_is_not_reported() -> None:
    assert findings_of(a_training(ppo__explained_variance=[NAN, -0.9, -0.9])) == {}


# TT606, TT607

def test_entropy_is_reported_once_it_is_low_three_times_in_a_row() -> None:
    assert findings_of(a_training(ppo__entropy=[0.5, 0.05, 0.05, 0.5, 0.05, 0.05])) == {}
    finding = findings_of(a_training(ppo__entropy=[0.5, 0.08, 0.06, 0.05, 0.04]))["TT606"]
    assert (finding.severity, finding.steps) == (Severity.P1, (4, 5))


def test_a_collapse_of_the_entropy_ends_only_well_above_its_limit() -> None:
    entropies = [0.05, 0.05, 0.05, 0.12, 0.14, 0.16, 0.12, 0.5]
    assert findings_of(a_training(ppo__entropy=entropies))["TT606"].steps == (3, 4, 5)


def test_low_entropy_is_milder_and_folded_into_a_collapse() -> None:
    assert list(findings_of(a_training(ppo__entropy=[0.5, 0.25, 0.25, 0.25]))) == ["TT607"]
    findings = findings_of(a_training(ppo__entropy=[0.25] * 4 + [0.05] * 4))
    assert list(findings) == ["TT606"]
    assert findings["TT606"].evidence.folded[0].startswith("TT607 ")


def test_low_entropy_is_not_reported_if_the_environment_is_solved_at_the_end() -> None:
    low, facts = [0.5, 0.25, 0.25, 0.25, 0.25], {"return_threshold": 475.0}
    solved, lost = [20.0, 180.0, 290.0, 300.0, 500.0], [20.0, 480.0, 490.0, 500.0, 300.0]
    assert findings_of(a_training(ppo__entropy=low, rollout__ep_rew_mean=solved, facts=facts)) == {}
    assert list(findings_of(a_training(ppo__entropy=low, rollout__ep_rew_mean=lost, facts=facts))) == ["TT607"]
    assert list(findings_of(a_training(ppo__entropy=low, rollout__ep_rew_mean=[500.0] * 5))) == ["TT607"]


def test_each_head_is_checked_separately() -> None:
    findings = findings_of(a_training(ppo__entropy__op=[0.05] * 3, ppo__entropy__slot=[0.8] * 3))
    assert "normalised entropy of op 0.05" in findings["TT606"].title


def test_an_entropy_that_is_not_normalised_is_not_checked() -> None:
    assert findings_of(a_training(ppo__entropy=[-2.5] * 9)) == {}


# TT608, TT609

def test_an_extreme_kl_is_reported_at_once_and_a_spike_unless_it_is_rare() -> None:
    assert list(findings_of(a_training(ppo__kl=[0.01, 0.6, 0.01]))) == ["TT608"]
    assert findings_of(a_training(ppo__kl=[0.01, 0.2, 0.2])) == {}
    assert list(findings_of(a_training(ppo__kl=[0.01, 0.2, 0.2, 0.3]))) == ["TT609"]


# TT610 to TT613

def test_an_early_stop_of_every_update_is_reported() -> None:
    assert list(findings_of(a_training(ppo__early_stopped=[1.0] * 22))) == ["TT610"]
    assert findings_of(a_training(ppo__early_stopped=[1.0] * 15)) == {}


def test_flat_advantages_and_many_clipped_samples_are_reported() -> None:
    assert list(findings_of(a_training(ppo__advantage_std=[0.9, 1e-9]))) == ["TT611"]
    assert list(findings_of(a_training(ppo__clip_fraction=[0.2, 0.6, 0.6, 0.7]))) == ["TT612"]
    assert findings_of(a_training(ppo__clip_fraction=[0.6, 0.6, 0.4] * 5)) == {}


def test_skipped_updates_are_reported_and_three_in_a_row_are_P0() -> None:
    assert findings_of(a_training(ppo__updates_skipped_total=[0, 1, 1, 2]))["TT613"].severity is Severity.P1
    assert findings_of(a_training(ppo__updates_skipped_total=[0, 1, 2, 3]))["TT613"].severity is Severity.P0


def test_one_skipped_update_is_singular() -> None:
    finding = findings_of(a_training(ppo__updates_skipped_total=[0, 1]))["TT613"]
    assert finding.title == "1 update skipped because the loss was not finite, 1 in a row (step 2)"


# TT614

def test_returns_that_never_change_are_reported() -> None:
    finding = findings_of(a_training(rollout__ep_rew_mean=[-200.0] * 30))["TT614"]
    assert (finding.severity, finding.steps[0]) == (Severity.P1, 20)
    assert finding.title.startswith("every episode so far has returned -200")


def test_returns_that_changed_once_converge_late_or_are_solved_are_not_reported() -> None:
    assert findings_of(a_training(rollout__ep_rew_mean=[-200.0] * 19)) == {}
    assert findings_of(a_training(rollout__ep_rew_mean=[-200.0] * 40 + [-199.0] + [-200.0] * 40)) == {}
    assert findings_of(a_training(rollout__ep_rew_mean=[20.0] + [500.0] * 60)) == {}
    assert findings_of(a_training(rollout__ep_rew_mean=[500.0] * 60, facts={"return_threshold": 475.0})) == {}


def test_flat_returns_detected_live_without_a_step_are_reported() -> None:
    live = Anomaly(code="TT614", subject="rollout/ep_rew_mean", value=-200.0, threshold=-200.0, text="flat")
    assert findings_of(a_training(live, rollout__ep_rew_mean=[-200.0] * 5))["TT614"].title == "flat"
