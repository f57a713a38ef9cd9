"""Costs, places and severities as the reporters word them."""

import pytest

from tests.unit.samples import a_finding
from torchtriage.findings.model import Cost, CostKind, Severity
from torchtriage.findings.report import Report
from torchtriage.reporters.summary import by_severity, cost_text, nothing_found, project_path, short_path, totals_line


def test_paths_are_relative_to_the_working_folder_of_the_run() -> None:
    assert short_path("/app/net/model.py:3", {"cwd": "/app/"}) == "net/model.py:3"
    assert short_path("/app/a.py", {}) == "/app/a.py"
    assert project_path("/app/net/model.py", {"cwd": "/app"}) == "net/model.py"
    assert project_path("/elsewhere/model.py", {"cwd": "/app"}) is None
    assert project_path("/app/model.py", {}) is None


def test_unknown_place_is_not_a_file_of_the_project() -> None:
    assert project_path("unknown", {"cwd": "/app"}) is None


@pytest.mark.parametrize(("cost", "expected"), [
    (Cost(), ""),
    (Cost(seconds=1.0), ""),
    (Cost(seconds=61.23, kind=CostKind.OBSERVED), "61.2 s (observed)"),
    (Cost(seconds=0.0, kind=CostKind.OBSERVED), "0 s (observed)"),
    (Cost(ms_per_step=0.25, share=0.057, kind=CostKind.OBSERVED), "250 us per step, 6% of steady state (observed)"),
    (Cost(seconds=2.0, kind=CostKind.ESTIMATED, note="short"), "2.00 s (estimated, short)"),
    (Cost(seconds=2.0, kind=CostKind.OBSERVED, note="x" * 99), "2.00 s (observed)"),
])
def test_cost_says_whether_it_was_observed_or_estimated(cost: Cost, expected: str) -> None:
    assert cost_text(cost) == expected


def test_severities_are_counted_worst_first_as_they_come() -> None:
    assert by_severity([a_finding(severity=Severity(n)) for n in (1, 1, 3)]) == "2 P1, 1 P3"


@pytest.mark.parametrize(("compiling", "run", "lead"), [
    (451.0, 500.0, "90% of this run was compiling: 0 findings"), (451.0, 9000.0, "0 findings"),
    (9.0, 10.0, "0 findings"), (451.0, None, "0 findings"),
])
def test_totals_lead_with_a_large_share_of_compiling(compiling: float, run: float | None, lead: str) -> None:
    report = Report(findings=[], totals={"compile_seconds": compiling, "run_seconds": run})
    assert totals_line(report).startswith(lead)


@pytest.mark.parametrize(("status", "expected"), [
    (0, "no findings"), (None, "no findings"), (1, "no findings before the program ended with exit status 1"),
])
def test_a_program_that_failed_is_not_without_findings(status: int | None, expected: str) -> None:
    assert nothing_found(Report(findings=[], run={"exit_status": status})) == expected
