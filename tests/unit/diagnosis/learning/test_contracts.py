"""Findings of broken contracts, and what is folded into them."""

from typing import Any

import pytest

from tests.unit.diagnosis.learning.samples import a_training, findings_of, noise
from torchtriage.diagnosis.learning.contracts import EFFECTS, TEXTS
from torchtriage.findings import catalogue

FLAT = noise(300, 2.3, 0.02)        # a loss that never decreases: TT415


def a_contract(code: str, **values: Any) -> dict[str, Any]:
    broken = {"code": code, "step": 4, "count": 3, "total": 8, "names": ["softmax"], "value": 2.0}
    return {"contracts": [{**broken, **values}]}


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_each_contract_has_a_page_a_title_and_a_fix(code: str) -> None:
    finding = findings_of(a_training(loss=[1.0], facts=a_contract(code, share=0.5)))[code]
    assert finding.severity is catalogue.rule(code).severity
    assert finding.steps == (4,)
    assert all((finding.title, finding.cause, finding.fix.text))


def test_a_loss_that_does_not_fall_follows_from_gradients_that_are_gone() -> None:
    findings = findings_of(a_training(loss=FLAT, facts=a_contract("TT427", names=["none"])))
    assert list(findings) == ["TT427"]
    assert [line.split()[0] for line in findings["TT427"].evidence.folded] == ["TT415"]


def test_a_contract_that_may_be_deliberate_explains_nothing() -> None:
    findings = findings_of(a_training(loss=FLAT, facts=a_contract("TT420", is_deliberate=True)))
    assert list(findings) == ["TT415", "TT420"]


def test_a_finding_that_a_contract_does_not_explain_stays() -> None:
    assert set(findings_of(a_training(loss=FLAT, facts=a_contract("TT429")))) == {"TT415", "TT429"}


def test_the_effects_are_rules() -> None:
    for code, effects in EFFECTS.items():
        assert {code, *effects} <= set(catalogue.codes())
