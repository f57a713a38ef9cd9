"""The cases of the advice benchmark are well formed, and its verdicts follow from what a report says."""

import re

import pytest

from benchmarks.advice import (
    Case,
    Finding,
    Observed,
    Option,
    all_cases,
    compile_findings,
    judge,
    judge_twin,
    names_cure_first,
    same_result,
    show,
)

CASES = all_cases()
PROGRAM = "x = 1\ny = x.item()\nprint(f'result {y}')\n"


def finding(**changes: object) -> Finding:
    values = {
        "code": "TT104",
        "severity": "P3",
        "line": 2,
        "file": "sample.py",
        "title": ".item() breaks f",
        "cause": "",
        "fix": "use detach(), or capture_scalar_outputs",
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def sample(**changes: object) -> Case:
    values = {
        "name": "sample",
        "family": "scalars",
        "cause": "item",
        "program": PROGRAM,
        "codes": ("TT104",),
        "line": "y = x.item()",
        "options": (Option(says="detach", edits=()), Option(says="capture", edits=())),
    }
    return Case(**{**values, **changes})  # type: ignore[arg-type]


def observation(*findings: Finding) -> Observed:
    return Observed(findings=findings, result="1.0")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_names_lines_and_edits_that_its_program_has(case: Case) -> None:
    assert bool(case.lines) == bool(case.options) == (not case.is_control)
    for number, option in enumerate(case.options):
        compile(case.twin(option), f"{case.name}-{number}", "exec")
        assert case.twin(option) != case.source
    for pattern in (case.says, case.never, *(option.says for option in case.options)):
        re.compile(pattern)
    compile(case.source, case.name, "exec")
    assert "print(f\"result {" in case.source


def test_there_are_enough_cases_and_their_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 66
    assert sum(case.is_control for case in CASES) >= 4


def test_only_the_first_finding_is_judged() -> None:
    right = judge(sample(), observation(finding(), finding(code="TT101")))
    assert (right.first, right.line, right.fix, right.problems) == (True, True, True, [])
    wrong = judge(sample(), observation(finding(code="TT101"), finding()))
    assert (wrong.first, wrong.line, wrong.fix) == (False, False, False)
    assert not judge(sample(), observation(finding(line=1))).line
    assert judge(sample(), observation()).problems == ["no finding"]


def test_the_fix_names_the_right_remedy_before_other_options() -> None:
    options = sample().options
    assert names_cure_first("detach() or capture", options)
    assert not names_cure_first("capture or detach()", options)
    assert not names_cure_first("capture", options)


def test_a_fix_that_offers_a_useless_remedy_is_wrong() -> None:
    outcome = judge(sample(never="capture_scalar_outputs"), observation(finding()))
    assert (outcome.first, outcome.fix) == (True, False)


def test_a_control_allows_only_findings_that_need_no_action() -> None:
    control = sample(codes=(), line=(), options=())
    assert judge(control, observation(finding(severity="P4"))).first
    assert not judge(control, observation(finding(severity="P3"))).first


def test_a_twin_has_only_the_findings_that_its_option_leaves() -> None:
    outcome = judge(sample(), observation(finding()))
    judge_twin(outcome, Option(says="", edits=(), leaves=("TT201",)), observation(), observation(finding(code="TT201")))
    assert (outcome.clean, outcome.numbers) == (True, True)
    judge_twin(outcome, Option(says="", edits=()), observation(), observation(finding(code="TT201")))
    assert not outcome.clean


@pytest.mark.parametrize(
    ("sick", "cured", "same"),
    [("1.0", "1.0005", True), ("1.0", "1.1", False), ("none", "2.0", True), ("2.0", "none", False)],
)
def test_results_agree_within_a_thousandth(sick: str, cured: str, same: bool) -> None:
    assert same_result(sick, cured) is same


def test_only_findings_on_compilation_count() -> None:
    entry = {"severity": "P3", "line": None, "path": None, "title": "", "cause": None, "fix": None}
    report = {"findings": [{"code": code, **entry} for code in ("TT401", "TT202")]}
    assert [f.code for f in compile_findings(report)] == ["TT202"]


def test_the_table_has_a_row_per_family_and_lists_the_failures() -> None:
    text = show([judge(sample(), observation(finding())), judge(sample(name="other"), observation())])
    assert "scalars       2      1/2" in text
    assert "other (item)" in text
