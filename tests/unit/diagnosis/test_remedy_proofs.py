"""Proofs of edits in a recording: shown for a finding that has the edit, and never trusted further than that."""

import importlib
import json
from typing import Any

import pytest

from tests.unit.samples import a_finding, a_recording
from torchtriage.diagnosis.remedy_proofs import stored_proofs, with_proofs
from torchtriage.diagnosis.report import build_report
from torchtriage.findings.model import Edit, EditLabel, Finding, Fix
from torchtriage.findings.proof.remedy import proof_sentence
from torchtriage.findings.redaction import redacted
from torchtriage.findings.report import Report
from torchtriage.findings.tap_state import REMEDY_PROOFS, TapState, TapStatus

EDIT = Edit(label=EditLabel.SAFE, text="`secret_name.detach()`", changes=())
STORED: dict[str, Any] = {
    "fingerprint": "f00d", "label": "safe", "text": EDIT.text, "numbers": "equal", "num_steps": 8,
    "seconds_before": 0.031, "seconds_after": 0.0224, "ratio_low": 0.7, "ratio_high": 0.75, "torch": "2.13.0",
}
SENTENCE = (
    "[safe] `secret_name.detach()` cures it: numbers equal bit for bit over 8 steps, "
    "step 31.0 ms -> 22.4 ms (ratio 0.7 to 0.75) (torch 2.13.0)")


def finding() -> Finding:
    return a_finding(fingerprint="f00d", fix=Fix(text="detach it", edits=(EDIT,)))


def proven(**changes: Any) -> Finding:
    content = {"schema": 1, "proofs": [{**STORED, **changes}]}
    proofs, unread = stored_proofs(a_recording(proofs=json.loads(json.dumps(content))))
    assert unread == []
    return with_proofs([finding()], proofs)[0]


def test_a_finding_with_the_edit_carries_the_proof() -> None:
    proof = proven().proof
    assert proof is not None
    assert proof_sentence(proof) == SENTENCE


@pytest.mark.parametrize("changes", [
    {"fingerprint": "beef"}, {"text": "`x.detach()`"}, {"label": "setting"}, {"numbers": "differ"}, {"numbers": "?"},
])
def test_a_proof_of_anything_else_is_not_shown(changes: dict[str, Any]) -> None:
    assert proven(**changes).proof is None


@pytest.mark.parametrize(("changes", "end"), [
    ({"seconds_before": None}, "numbers equal bit for bit over 8 steps (torch 2.13.0)"),
    ({"ratio_low": -1}, "numbers equal bit for bit over 8 steps (torch 2.13.0)"),
    ({"torch": "\u001b[31m"}, "(ratio 0.7 to 0.75)"),
    ({"num_steps": -3, "numbers": "rounding", "ratio_high": 0}, "it: numbers equal within rounding (torch 2.13.0)"),
])
def test_what_cannot_be_true_is_left_out(changes: dict[str, Any], end: str) -> None:
    proof = proven(**changes).proof
    assert proof is not None
    assert proof_sentence(proof).endswith(end)


@pytest.mark.parametrize("data", [
    [], "x", 3, {}, {"schema": 2}, {"schema": 1}, {"schema": 1, "proofs": {}}, {"schema": 1, "proofs": [3]},
    {"schema": 1, "proofs": [{"fingerprint": "f00d"}]},
    {"schema": 1, "proofs": [{**STORED, "num_steps": "8"}]},
    {"schema": 1, "proofs": [{**STORED, "seconds_before": 10**400}]},
])
def test_a_damaged_file_is_reported_and_never_raises(data: Any) -> None:
    report = build_report(a_recording(proofs=data))
    (state,) = [tap for tap in report.not_seen if tap.name == REMEDY_PROOFS]
    assert state.status is TapStatus.ABSENT
    assert "proofs.json" in state.detail


def test_a_file_that_cannot_be_read_is_reported() -> None:
    recording = a_recording(proofs_problem="cannot read proofs.json: it is a folder")
    problem = TapState(name=REMEDY_PROOFS, status=TapStatus.ABSENT, detail="cannot read proofs.json: it is a folder")
    assert stored_proofs(recording) == ((), [problem])


@pytest.mark.parametrize("form", ["terminal", "markdown", "html.page", "sarif", "json"])
def test_every_report_shows_the_proof(form: str) -> None:
    render = importlib.import_module(f"torchtriage.reporters.{form}").render
    with_proof, without = render(Report(findings=[proven()])), render(Report(findings=[finding()]))
    words = '"verified": true' if form == "json" else "numbers equal bit for bit over 8 steps"
    assert (words in " ".join(with_proof.split()), words in " ".join(without.split())) == (True, False)


def test_a_redacted_proof_does_not_name_the_edit() -> None:
    (found,) = redacted(Report(findings=[proven()])).findings
    assert found.proof is not None
    assert proof_sentence(found.proof) == SENTENCE.replace("`secret_name.detach()`", "an edit")
