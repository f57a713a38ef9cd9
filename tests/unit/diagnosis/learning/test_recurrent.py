"""TT501 to TT504: the state of a recurrent network in a hand-made training."""

from tests.unit.diagnosis.learning.samples import INF, a_training, findings_of
from torchtriage.findings.model import Severity


def test_nan_in_the_state_is_reported_by_flag_or_by_rms() -> None:
    finding = findings_of(a_training(lstm__has_nan=[0, 0, 1]))["TT501"]
    assert finding.title == "the recurrent state contains NaN (step 3)"
    assert findings_of(a_training(lstm__has_inf=[0, 1, 0]))["TT501"].steps == (2,)
    finding = findings_of(a_training(lstm__c_rms_max=[1.0, INF]))["TT501"]
    assert finding.title == "the RMS of the cell state is Inf (step 2)"


def test_an_exploding_state_is_named() -> None:
    finding = findings_of(a_training(lstm__c_rms_max=[1.0, 120.0]))["TT502"]
    assert "RMS 120 of the cell state" in finding.title
    assert finding.severity == Severity.P2
    assert findings_of(a_training(lstm__h_rms_max=[1.0, 12.0]))["TT502"].severity == Severity.P2
    assert findings_of(a_training(lstm__c_rms_max=[1.0, 9.9])) == {}


def test_a_cell_state_that_counts_steps_is_not_severe() -> None:
    assert findings_of(a_training(lstm__c_rms_max=[1.0, 13.0, 9.0, 11.0])) == {}
    assert findings_of(a_training(lstm__c_rms_max=[1.0, 13.0, 12.0, 11.0]))["TT502"].severity == Severity.P3


def test_a_state_that_was_just_reset_does_not_count_as_vanishing() -> None:
    assert findings_of(a_training(lstm__h_rms=[0.0, 0.3, 0.0, 0.3])) == {}
    assert list(findings_of(a_training(lstm__h_rms=[0.0] * 4, lstm__h_rms_max=[0.0] * 4))) == ["TT503"]


def test_a_saturated_state_is_reported_unless_it_exceeds_the_range_of_tanh() -> None:
    assert list(findings_of(a_training(lstm__h_rms=[0.97] * 4))) == ["TT504"]
    assert findings_of(a_training(lstm__h_rms=[1.3] * 4, lstm__c_rms=[0.97] * 4)) == {}
