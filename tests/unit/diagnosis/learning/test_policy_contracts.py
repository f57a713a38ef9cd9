"""The findings of broken contracts of PPO."""

import pytest

from tests.unit.diagnosis.learning.samples import a_training, findings_of
from torchtriage.diagnosis.learning.policy_contracts import TEXTS
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.facts import BrokenContract, to_dict


def found(broken: BrokenContract) -> Finding:
    return findings_of(a_training(facts={"contracts": [to_dict(broken)]}, loss=[1.0]))[broken.code]


@pytest.mark.parametrize("code", TEXTS)
def test_each_contract_gives_a_finding_with_its_first_step(code: str) -> None:
    finding = found(BrokenContract(
        code=code, step=48, count=32, total=128, names=("advantages",), value=0.5, share=0.25))
    assert (finding.code, finding.steps) == (code, (48,))
    assert "step 48" in finding.cause
    assert finding.fix is not None


def test_what_was_seen_is_named() -> None:
    finding = found(BrokenContract(code="TT615", step=9, names=("old log-probabilities", "advantages")))
    assert finding.title == "the loss of PPO differentiates its old log-probabilities, advantages"
    assert found(BrokenContract(code="TT617", step=9, count=64, total=4096)).title == (
        "the value loss has 4096 errors for 64 samples")


def test_a_policy_that_a_rate_of_zero_holds_is_folded_into_that_rate() -> None:
    contracts = [BrokenContract(code="TT620", step=9, count=3), BrokenContract(code="TT425", step=5, names=("Adam",))]
    findings = findings_of(a_training(facts={"contracts": [to_dict(one) for one in contracts]}, loss=[1.0]))
    assert [*findings] == ["TT425"]


def test_the_predictions_of_a_critic_are_not_compared_with_a_guess() -> None:
    facts = {"contracts": [to_dict(BrokenContract(code="TT440", step=9, value=1.0, share=1.0, names=("mean",)))]}
    assert "TT440" in findings_of(a_training(facts=facts, loss=[1.0]))
    assert "TT440" not in findings_of(a_training(facts=facts, ppo__kl=[0.01]))


def test_a_contract_comes_before_the_limits_that_the_update_passes() -> None:
    facts = {"contracts": [to_dict(BrokenContract(code="TT621", step=9, value=-1.0))]}
    findings = findings_of(a_training(facts=facts, ppo__entropy=[0.9] + [0.01] * 9))
    assert [*findings] == ["TT621", "TT606"]
    assert {finding.severity for finding in findings.values()} == {Severity.P1}
