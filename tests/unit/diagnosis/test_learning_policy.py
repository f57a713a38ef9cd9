"""TT5xx and TT6xx: what is told of the recurrent state and of the updates of PPO, and what is not."""

import math

import pytest

from tests.unit.diagnosis.learning_samples import a_training, found, noise
from torchtriage.findings.model import Severity
from torchtriage.recording.events import Anomaly

NAN, INF = math.nan, math.inf


def test_a_healthy_policy_has_no_finding() -> None:
    fine = a_training(
        lstm__h_rms=[0.4] * 60, lstm__h_rms_max=[0.6] * 60, lstm__c_rms_max=[2.0] * 60, lstm__has_nan=[0.0] * 60, ppo__ratio_max=[1.4] * 60,
        ppo__ratio_min=[0.6] * 60, ppo__first_ratio_deviation=[1e-6] * 60, ppo__kl=[0.012] * 60, ppo__entropy=[0.7] * 60,
        ppo__value_loss=[0.8] * 60, ppo__explained_variance=[NAN] + [0.3] * 59, ppo__clip_fraction=[0.2] * 60,
        ppo__advantage_std=[1.0] * 60, ppo__early_stopped=[0.0, 1.0] * 30, ppo__updates_skipped_total=[0.0] * 60,
    )
    assert found(fine) == {}


# Recurrent state

def test_nan_in_the_state_is_told_by_flag_or_by_rms() -> None:
    assert found(a_training(lstm__has_nan=[0, 0, 1]))["TT501"].title == "the recurrent state holds NaN (step 3)"
    assert found(a_training(lstm__has_inf=[0, 1, 0]))["TT501"].steps == (2,)
    assert found(a_training(lstm__c_rms_max=[1.0, INF]))["TT501"].title == "the RMS of the cell state is Inf (step 2)"


def test_an_exploding_state_is_told_and_which() -> None:
    assert "RMS 12 of the cell state" in found(a_training(lstm__c_rms_max=[1.0, 12.0]))["TT502"].title
    assert found(a_training(lstm__c_rms_max=[1.0, 9.9])) == {}


def test_a_state_that_was_just_reset_is_not_a_vanishing_one() -> None:
    assert found(a_training(lstm__h_rms=[0.0, 0.3, 0.0, 0.3])) == {}
    assert list(found(a_training(lstm__h_rms=[0.0] * 4, lstm__h_rms_max=[0.0] * 4))) == ["TT503"]


def test_a_saturated_state_is_told_and_one_beyond_tanh_is_not_called_so() -> None:
    assert list(found(a_training(lstm__h_rms=[0.97] * 4))) == ["TT504"]
    assert found(a_training(lstm__h_rms=[1.3] * 4, lstm__c_rms=[0.97] * 4)) == {}


# Ratios

@pytest.mark.parametrize("values", [{"ppo__ratio_max": [1.0, NAN], "ppo__ratio_min": [0.5, 0.01]}, {"ppo__kl": [0.0, INF]},
                                    {"ppo__entropy": [0.5, NAN]}, {"ppo__advantage_std": [1.0, NAN]},
                                    {"ppo__first_ratio_deviation": [0.0, INF]}])
def test_what_is_not_finite_is_told_alone(values: dict[str, list[float]]) -> None:
    finding = found(a_training(**values))
    assert list(finding) == ["TT601"]
    assert (finding["TT601"].severity, finding["TT601"].steps) == (Severity.P0, (2,))


def test_ratios_out_of_range_are_told_once_they_are_not_rare() -> None:
    assert list(found(a_training(ppo__ratio_max=[1.0, 6.0, 7.5, 6.0]))) == ["TT602"]
    assert "up to 7.5" in found(a_training(ppo__ratio_max=[1.0, 6.0, 7.5, 6.0]))["TT602"].title
    assert list(found(a_training(ppo__ratio_min=[0.05] * 3 + [0.5] * 50))) == ["TT603"]
    assert found(a_training(ppo__ratio_max=[6.0] * 2 + [1.0] * 50, ppo__ratio_min=[0.05] * 3 + [0.5] * 80)) == {}


def test_the_first_ratio_must_be_one_but_for_rounding() -> None:
    assert found(a_training(ppo__first_ratio_deviation=[0.01]))["TT604"].severity is Severity.P1
    assert found(a_training(ppo__first_ratio_deviation=[0.01], facts={"autocast_dtype": "bfloat16"})) == {}
    assert list(found(a_training(ppo__first_ratio_deviation=[0.1], facts={"autocast_dtype": "bfloat16"}))) == ["TT604"]


# Value function

def test_a_value_loss_out_of_range_is_told_with_the_explained_variance() -> None:
    finding = found(a_training(ppo__value_loss=[1.0, 6.0, 5.5, 5.5], ppo__explained_variance=[0.2, -0.4, 0.0, 0.0]))["TT605"]
    assert finding.title == "value loss 6, explained variance -0.4 (step 2; 3 times, steps 2 to 4)"
    assert list(found(a_training(ppo__bellman_error=[1.0, 6.0, 6.0, 6.0]))) == ["TT605"]


def test_the_first_updates_of_a_critic_that_has_learned_nothing_yet_are_no_finding() -> None:
    assert found(a_training(ppo__value_loss=[13.0] * 8 + [1.0] * 20)) == {}
    assert list(found(a_training(ppo__value_loss=[13.0] * 28))) == ["TT605"]        # it never learns


def test_a_critic_that_is_off_now_and_then_has_not_collapsed() -> None:
    assert found(a_training(ppo__value_loss=[13.0] * 8 + [1.0] * 5 + ([9.0, 9.0] + [1.0] * 5) * 4)) == {}
    finding = found(a_training(ppo__value_loss=[13.0] * 8 + [1.0] * 5 + [9.0] * 3 + [1.0] * 5 + [9.0] * 2))["TT605"]
    assert finding.steps == (14, 15, 16)


def test_a_critic_that_explains_the_returns_has_not_collapsed_whatever_their_scale() -> None:
    assert found(a_training(ppo__value_loss=[900.0] * 5, ppo__explained_variance=[0.9] * 5)) == {}
    assert found(a_training(ppo__value_loss=[900.0] * 5, ppo__returns_std=[20.0] * 5)) == {}
    assert list(found(a_training(ppo__value_loss=[9000.0] * 5, ppo__returns_std=[20.0] * 5))) == ["TT605"]


def test_a_critic_that_is_off_where_the_environment_was_solved_harmed_nothing() -> None:
    losses, facts = [1.0] + [9.0] * 8, {"return_threshold": 475.0}
    assert found(a_training(ppo__value_loss=losses, rollout__ep_rew_mean=[20.0] * 8 + [480.0], facts=facts)) == {}
    assert list(found(a_training(ppo__value_loss=losses, rollout__ep_rew_mean=[20.0] * 7 + [480.0, 9.0], facts=facts))) == ["TT605"]


def test_loss_and_gradient_norm_of_a_policy_may_move_as_its_data_do() -> None:
    moved, kl = [1.0] * 100 + [4.0] * 60, [0.01] * 160
    assert list(found(a_training(grad_norm=moved))) == ["TT410"]
    assert found(a_training(grad_norm=moved, ppo__kl=kl)) == {}
    assert list(found(a_training(grad_norm=moved, grad_norm_drift=[0.9] * 160, ppo__kl=kl))) == ["TT410"]       # somebody asked for it
    jumped = [*noise(159), 60.0]
    assert "TT414" in found(a_training(loss=jumped))
    assert found(a_training(loss=jumped, ppo__kl=kl)) == {}


CLIPPED = {"grad_norm__critic": [0.0] * 29 + [40.0], "grad_norm": [0.01] * 29 + [40.0]}


def test_a_critic_that_value_clipping_holds_back_is_one_finding_with_that_fix() -> None:
    held = {"ppo__value_clip_fraction": [0.9] * 30, **CLIPPED}
    finding, *others = found(a_training(ppo__value_loss=[90.0] * 30, **held)).values()
    assert (finding.code, others) == ("TT605", [])
    assert finding.fix.text.startswith("value clipping leaves the critic no gradient in 90% of the samples")
    assert sorted(folded[-5:] for folded in finding.evidence.folded) == ["TT404", "TT406"]
    finding, *others = found(a_training(**held)).values()
    assert (finding.code, others) == ("TT406", [])
    assert finding.fix.text.startswith("value clipping leaves the critic no gradient")


def test_a_critic_whose_last_minibatch_was_clipped_away_has_learned_from_those_before() -> None:
    assert found(a_training(ppo__value_clip_fraction=[0.3] * 30, **CLIPPED)) == {}
    assert found(a_training(ppo__value_clip_fraction=[0.0] * 30, **CLIPPED)).keys() == {"TT404", "TT406"}
    assert found(a_training(**CLIPPED)).keys() == {"TT404", "TT406"}


def test_value_clipping_takes_nothing_from_an_actor_and_is_behind_no_other_explosion() -> None:
    zeros = {"grad_norm__actor": [0.0] * 30, "ppo__value_clip_fraction": [0.3] * 30}
    assert found(a_training(**zeros)).keys() == {"TT406"}
    late = {"grad_norm__critic": [0.0] * 8 + [1.0] * 60, "grad_norm": [0.01] * 8 + [1.0] * 59 + [90.0]}
    assert found(a_training(ppo__value_clip_fraction=[0.3] * 68, **late)).keys() == {"TT404"}


def test_explained_variance_alone_and_its_nan_are_no_finding() -> None:
    assert found(a_training(ppo__explained_variance=[NAN, -0.9, -0.9])) == {}


def test_a_value_loss_that_is_not_finite_is_a_loss_that_is_not_finite() -> None:
    assert list(found(a_training(ppo__value_loss=[1.0, NAN]))) == ["TT401"]


# Entropy and KL

def test_entropy_must_be_low_three_times_in_a_row() -> None:
    assert found(a_training(ppo__entropy=[0.5, 0.05, 0.05, 0.5, 0.05, 0.05])) == {}
    finding = found(a_training(ppo__entropy=[0.5, 0.08, 0.06, 0.05, 0.04]))["TT606"]
    assert (finding.severity, finding.steps) == (Severity.P1, (4, 5))


def test_a_collapse_ends_only_well_above_its_limit() -> None:
    assert found(a_training(ppo__entropy=[0.05, 0.05, 0.05, 0.12, 0.14, 0.16, 0.12, 0.5]))["TT606"].steps == (3, 4, 5)


def test_low_entropy_is_milder_and_told_with_the_collapse_if_there_is_one() -> None:
    assert list(found(a_training(ppo__entropy=[0.5, 0.25, 0.25, 0.25]))) == ["TT607"]
    findings = found(a_training(ppo__entropy=[0.25] * 4 + [0.05] * 4))
    assert list(findings) == ["TT606"]
    assert findings["TT606"].evidence.folded[0].endswith("TT607")


def test_a_sure_policy_is_the_aim_once_the_environment_is_solved_whenever_it_became_sure() -> None:
    low, facts = [0.5, 0.25, 0.25, 0.25, 0.25], {"return_threshold": 475.0}
    assert found(a_training(ppo__entropy=low, rollout__ep_rew_mean=[20.0, 180.0, 290.0, 300.0, 500.0], facts=facts)) == {}
    assert list(found(a_training(ppo__entropy=low, rollout__ep_rew_mean=[20.0, 480.0, 490.0, 500.0, 300.0], facts=facts))) == ["TT607"]
    assert list(found(a_training(ppo__entropy=low, rollout__ep_rew_mean=[500.0] * 5))) == ["TT607"]


def test_each_head_is_judged_by_itself_and_an_entropy_that_is_not_normalised_not_at_all() -> None:
    findings = found(a_training(ppo__entropy__op=[0.05] * 3, ppo__entropy__slot=[0.8] * 3))
    assert "normalised entropy of op 0.05" in findings["TT606"].title
    assert found(a_training(ppo__entropy=[-2.5] * 9)) == {}


def test_kl_is_extreme_at_once_and_a_spike_if_it_is_not_rare() -> None:
    assert list(found(a_training(ppo__kl=[0.01, 0.6, 0.01]))) == ["TT608"]
    assert found(a_training(ppo__kl=[0.01, 0.2, 0.2])) == {}
    assert list(found(a_training(ppo__kl=[0.01, 0.2, 0.2, 0.3]))) == ["TT609"]


# The rest of an update

def test_an_early_stop_at_every_update_is_told() -> None:
    assert list(found(a_training(ppo__early_stopped=[1.0] * 22))) == ["TT610"]
    assert found(a_training(ppo__early_stopped=[1.0] * 15)) == {}


def test_flat_advantages_and_clipped_samples_are_told() -> None:
    assert list(found(a_training(ppo__advantage_std=[0.9, 1e-9]))) == ["TT611"]
    assert list(found(a_training(ppo__clip_fraction=[0.2, 0.6, 0.6, 0.7]))) == ["TT612"]
    assert found(a_training(ppo__clip_fraction=[0.6, 0.6, 0.4] * 5)) == {}


def test_skipped_updates_are_told_and_three_in_a_row_are_the_end() -> None:
    assert found(a_training(ppo__updates_skipped_total=[0, 1, 1, 2]))["TT613"].severity is Severity.P1
    assert found(a_training(ppo__updates_skipped_total=[0, 1, 2, 3]))["TT613"].severity is Severity.P0


# Returns

def test_returns_that_never_move_are_told() -> None:
    finding = found(a_training(rollout__ep_rew_mean=[-200.0] * 30))["TT614"]
    assert (finding.severity, finding.steps[0]) == (Severity.P1, 20)
    assert finding.title.startswith("every episode so far has returned -200")


def test_returns_that_moved_once_that_rest_at_the_end_or_that_are_solved_are_not_told() -> None:
    assert found(a_training(rollout__ep_rew_mean=[-200.0] * 19)) == {}
    assert found(a_training(rollout__ep_rew_mean=[-200.0] * 40 + [-199.0] + [-200.0] * 40)) == {}
    assert found(a_training(rollout__ep_rew_mean=[20.0] + [500.0] * 60)) == {}
    assert found(a_training(rollout__ep_rew_mean=[500.0] * 60, facts={"return_threshold": 475.0})) == {}


def test_flat_returns_found_live_without_a_step_are_reported() -> None:
    live = Anomaly(code="TT614", subject="rollout/ep_rew_mean", value=-200.0, threshold=-200.0, text="flat")
    assert found(a_training(live, rollout__ep_rew_mean=[-200.0] * 5))["TT614"].title == "flat"
