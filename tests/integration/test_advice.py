"""Options that first findings print, applied to their programs: the finding is gone, the numbers are the same."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from advice_cases.case import Case  # noqa: E402

from benchmarks.advice import TRIED, all_cases  # noqa: E402
from tests.programs import torch_version  # noqa: E402

pytestmark = pytest.mark.thorough

# Nothing says so within watch(): whether a target is called at all is known only at the end of a run.
CASES = [case for case in all_cases() if "TT303" not in case.codes]
# What is printed gives both readings, and one of them does not cure this program.
BOTH_READINGS = {"pyramid_widths"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The verdict on every case, from one process that forks for each program."""
    output = tmp_path_factory.mktemp("advice") / "outcomes.json"
    names = ",".join(case.name for case in CASES)
    flags = ["--fork", "--every-option", "--only", names, "--output", str(output)]
    command = [sys.executable, "benchmarks/advice.py", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return {outcome["name"]: outcome for outcome in json.loads(output.read_text())}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_finding_names_the_cure_and_every_option_cures(case: Case, outcomes: dict[str, Any]) -> None:
    outcome = outcomes[case.name]
    problems = outcome["problems"]
    if case.name in BOTH_READINGS:
        problems = [problem for problem in problems if "does not cure this program" not in problem]
    assert not problems, f"{outcome['reported']}\n{problems}"


def test_every_option_on_record_for_this_torch_cures_again(outcomes: dict[str, Any]) -> None:
    version = ".".join(map(str, torch_version()[:2]))
    recorded = {
        (row["code"], row["program"], row["option"])
        for row in json.loads(TRIED.read_text()) if version in row["torch"] and row["program"] in outcomes
    }
    cured = {
        (trial["code"], name, trial["option"])
        for name, outcome in outcomes.items() for trial in outcome["trials"] if trial["cured"]
    }
    assert not recorded - cured


def test_every_program_on_record_exists() -> None:
    rows = json.loads(TRIED.read_text())
    assert {row["program"] for row in rows} <= {case.name for case in all_cases()}
