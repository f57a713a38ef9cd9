"""A proof in every format: the verdict first, its reasons in sentences, nothing wider than the terminal."""

import json
import re

import pytest

from torchtriage.findings.model import Severity
from torchtriage.findings.proof.verdict import (
    FindingMark,
    FindingsChange,
    LossCurve,
    NumbersChange,
    NumbersState,
    Proof,
    ProofTime,
    ProofVerdict,
    ReasonKind,
    SideFacts,
    VerdictReason,
)
from torchtriage.findings.shape_study import Interval
from torchtriage.reporters.proof import json as as_json
from torchtriage.reporters.proof import markdown, page, text
from torchtriage.reporters.proof.sentences import reason_sentence

MARK = FindingMark(
    code="TT104", severity=Severity.P3, title=".item() breaks <b>loss_of</b>", place="train.py:26", fingerprint="ab")
DIFFERS = VerdictReason(
    kind=ReasonKind.NUMBERS_DIFFER, verdict=ProofVerdict.REFUTED, subject="gradient inner.weight", step=3,
    value_before=0.5, value_after=0.51, difference=0.02, allowed=3e-6)


def a_proof(*reasons: VerdictReason) -> Proof:
    curve = LossCurve(steps=[1, 2, 3], values=[1.0, 0.5, float("nan")], times=[0.1, 0.2, 0.3])
    verdict = reasons[0].verdict if reasons else ProofVerdict.VERIFIED
    moments = [("compile", 1.0, 0.5), ("graph break", 1.2, 0.0)]
    return Proof(
        verdict=verdict, reasons=reasons, findings=FindingsChange(fixed=[MARK]),
        before=SideFacts(label="before.py", graph_breaks=3, num_steps=3, moments=moments),
        after=SideFacts(label="after.py", graph_breaks=0, num_steps=3, moments=moments[:1]),
        numbers=NumbersChange(
            state=NumbersState.ROUNDING, compared=["losses", "weights"], num_steps=3, own_difference=0.0,
            before=curve, after=curve),
        time=ProofTime(
            before_seconds=0.03, after_seconds=0.02, ratio=Interval(middle=0.7, low=0.6, high=0.8), num_steps=40,
            in_turns=True),
        notes=("a note",), num_runs=6, seconds=30.0)


def test_the_text_begins_with_the_verdict_and_fits_the_terminal() -> None:
    shown = text.render(a_proof(), 80)
    assert shown.startswith("VERIFIED   1 finding fixed, nothing new; numbers equal within rounding")
    assert max(map(len, shown.splitlines())) <= 80
    assert "graph breaks 3 -> 0" in shown
    assert "step 30.0 ms -> 20.0 ms, ratio 0.7 (0.6 to 0.8)" in " ".join(shown.split())


def test_the_reason_that_decides_is_the_first_line() -> None:
    shown = " ".join(text.render(a_proof(DIFFERS)).split())
    assert shown.startswith("REFUTED the numbers differ from step 3 on: gradient inner.weight by 2 % (0.5 before, ")
    assert "rounding moves it by 3.0e-06 of it at most" in shown


@pytest.mark.parametrize("kind", list(ReasonKind))
def test_every_reason_has_a_sentence(kind: ReasonKind) -> None:
    sentence = reason_sentence(VerdictReason(kind=kind, verdict=ProofVerdict.UNDECIDED, step=4, subject="x"))
    assert len(sentence) > 10
    assert "None" not in sentence


def test_the_json_has_the_fields_of_the_schema_and_the_sentences() -> None:
    data = json.loads(as_json.render(a_proof(DIFFERS)))
    assert list(data)[:6] == ["schema", "verdict", "reasons", "findings", "numbers", "time"]
    assert (data["verdict"], data["reasons"][0]["kind"]) == ("refuted", "numbers-differ")
    assert data["reasons"][0]["text"] == reason_sentence(DIFFERS)
    assert data["findings"]["fixed"][0]["severity"] == "P3"
    assert set(data["findings"]) == {"fixed", "unchanged", "new"}


def test_text_of_the_program_is_escaped() -> None:
    proof = a_proof(DIFFERS)
    assert "<b>loss_of" not in page.render(proof)
    assert r"\<b>loss\_of\</b>" in markdown.render(proof)


def test_the_page_shows_both_sides_on_one_axis_and_needs_no_network() -> None:
    shown = page.render(a_proof())
    assert shown.count("proof-compile") == 3      # two compiles and the style
    assert re.findall(r'class="proof-(before|after)" points="', shown) == ["before", "after"]
    assert "Content-Security-Policy" in shown
    assert "http://" not in shown
    assert "<script" not in shown


def test_the_page_of_a_proof_without_numbers_has_no_chart() -> None:
    empty = Proof(verdict=ProofVerdict.UNDECIDED, before=SideFacts(label="a"), after=SideFacts(label="b"), reasons=(
        VerdictReason(kind=ReasonKind.NO_NUMBERS, verdict=ProofVerdict.UNDECIDED),))
    assert "<svg" not in page.render(empty)
    assert text.render(empty).startswith("UNDECIDED")


def test_the_exit_codes_are_those_of_the_docs() -> None:
    assert [verdict.exit_code for verdict in ProofVerdict] == [0, 1, 2]
