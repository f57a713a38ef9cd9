"""Proposed edits and their trials in each form."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sarif_pydantic import Sarif

from tests.unit.samples import a_finding
from torchtriage.findings.edits.proposal import Combination, FixReport, Proposal, ProposedEdit
from torchtriage.findings.edits.trials import EditTrial, TrialReport
from torchtriage.findings.model import Change, ChangeKind, Edit, EditLabel, Location
from torchtriage.findings.proof.verdict import Proof, ProofVerdict, ReasonKind, SideFacts, VerdictReason
from torchtriage.findings.report import Report
from torchtriage.reporters.fixes import code_scanning, data, text, trials

DIFF = """\
--- a/pkg/model.py
+++ b/pkg/model.py
@@ -1,2 +1,4 @@
 import torch
+
+torch.x = 1
 x = 2
@@ -13,3 +15,2 @@
 a = 1
-print(a)
-print(b)
+if c:
 d = 2
"""
CHANGE = Change(kind=ChangeKind.WRAP, path="/app/pkg/model.py", line=14, old="print(a)", new="if c")
EDIT = Edit(label=EditLabel.SAFE, text="`if c:` around it", changes=(CHANGE,))
OTHER = replace(EDIT, label=EditLabel.SETTING, text="torch.x = 1")
SICK = a_finding(location=Location(path="/app/pkg/model.py", line=14, function="forward"))
POSSIBLE = Proposal(finding=SICK, edits=(
    ProposedEdit(edit=EDIT, diff=DIFF), ProposedEdit(edit=OTHER, diff="--- a/other\n")))
IMPOSSIBLE = Proposal(finding=a_finding("TT401", fingerprint="f" * 16), reason="no edit is known")
FIXES = FixReport(
    proposals=(POSSIBLE, IMPOSSIBLE), together=Combination(edits=(EDIT,), diff=DIFF), labels=(EditLabel.SAFE,))


def test_the_text_shows_the_first_diff_and_names_the_other_options() -> None:
    shown = text.render(FIXES, next_command="torchtriage fix a.triage --apply")
    assert DIFF in shown
    assert "  or [setting: a line of configuration] torch.x = 1\n" in shown
    assert "--- a/other" not in shown
    assert "--- a/other" in text.render(FIXES, verbose=True)
    assert "no edit:\n  TT401 P3  print() breaks forward at model.py:14\n    no edit is known\n" in shown
    assert "2 findings, 1 with an edit (1 safe · 1 setting)" in shown or "1 safe, 1 setting" in shown
    assert "to apply 1 edit (safe): torchtriage fix a.triage --apply" in shown


def test_no_findings_is_said() -> None:
    assert text.render(FixReport()) == "no findings\n"


def test_the_json_has_every_option_with_its_diff() -> None:
    found = json.loads(data.render(FIXES))
    assert [edit["label"] for edit in found["findings"][0]["edits"]] == ["safe", "setting"]
    assert found["findings"][0]["edits"][0]["changes"][0]["kind"] == "wrap"
    assert found["findings"][1]["reason"] == "no edit is known"
    assert found["together"] == {"edits": ["`if c:` around it"], "diff": DIFF, "left_out": []}


def test_sarif_results_have_fixes_that_replace_the_lines_of_the_diff() -> None:
    report = Report(findings=(SICK, IMPOSSIBLE.finding), run={"cwd": "/app", "argv": ["train.py"]})
    log = json.loads(code_scanning.render(report, FIXES))
    Sarif.model_validate(log)
    first, second = log["runs"][0]["results"]
    assert "fixes" not in second
    (change,) = first["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "pkg/model.py", "uriBaseId": "%SRCROOT%"}
    added, replaced = change["replacements"]
    assert added["deletedRegion"] == {"startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 1}
    assert added["insertedContent"]["text"] == "\ntorch.x = 1\n"
    assert replaced["deletedRegion"] == {"startLine": 14, "startColumn": 1, "endLine": 16, "endColumn": 1}
    assert replaced["insertedContent"]["text"] == "if c:\n"


def a_trial(verdict: ProofVerdict, **fields: Any) -> EditTrial:
    reason = VerdictReason(kind=ReasonKind.NOT_FIXED, verdict=ProofVerdict.REFUTED, subject="TT101")
    side = SideFacts(label="train.py", graph_breaks=1)
    proof = Proof(
        verdict=verdict, before=side, after=replace(side, graph_breaks=0),
        reasons=() if verdict is ProofVerdict.VERIFIED else (reason,),
    )
    return EditTrial(finding=SICK, proposed=POSSIBLE.edits[0], proof=proof, **fields)


def test_a_verified_edit_is_told_from_a_refuted_one() -> None:
    verified, refuted = a_trial(ProofVerdict.VERIFIED), a_trial(ProofVerdict.REFUTED)
    report = TrialReport(trials=(refuted, verified), kept=(verified,), patch=DIFF, seconds=61.0)
    shown = trials.as_text(report, "train-fix.patch")
    assert "REFUTED: TT101 is not fixed" in shown
    assert "VERIFIED: " in shown
    assert "graph breaks 1 -> 0" in shown
    assert "1 of 1 finding cured" in shown
    assert "git apply train-fix.patch" in shown
    found = json.loads(trials.as_json(report, "train-fix.patch"))
    assert found["findings"][0]["verified"] is True
    assert [trial["verdict"] for trial in found["findings"][0]["trials"]] == ["refuted", "verified"]
    assert found["findings"][0]["trials"][0]["reasons"] == ["TT101 is not fixed"]


@pytest.mark.parametrize(("ended_by", "words"), [("budget", "the budget ended"), ("Ctrl-C", "Ctrl-C ended the trials")])
def test_what_was_not_tried_is_said(ended_by: str, words: str) -> None:
    report = TrialReport(untried=(SICK,), without=((IMPOSSIBLE.finding, "no edit is known"),), ended_by=ended_by)
    shown = trials.as_text(report)
    assert f"not tried, as {words}:\n  TT101 P3" in shown
    assert "no edit was tried" in shown
    assert "no edit is known" in shown
    assert not any(f["verified"] for f in json.loads(trials.as_json(report))["findings"])
