"""Places, costs and counts in words."""

import pytest

from tests.unit.samples import a_finding
from torchtriage.findings.model import Cost, CostKind, Severity
from torchtriage.reporters.phrases import by_severity, cost_text, counted, duration, project_path, short_path


@pytest.mark.parametrize(("path", "expected"), [
    ("/app/net/model.py:3", "net/model.py:3"), ("/app", "/app"), ("/application/model.py", "/application/model.py"),
    ("/v/lib/python3.11/site-packages/timm/x.py", "timm/x.py"), ("unknown", "unknown"),
])
def test_paths_are_short(path: str, expected: str) -> None:
    assert short_path(path, {"cwd": "/app/"}) == expected
    assert short_path("/app/a.py", {}) == "/app/a.py"


@pytest.mark.parametrize(("cost", "expected"), [
    (Cost(), ""),
    (Cost(seconds=1.0), ""),
    (Cost(seconds=61.23, kind=CostKind.OBSERVED), "61 s (observed)"),
    (Cost(seconds=0.0, kind=CostKind.OBSERVED), "0.0 us (observed)"),
    (Cost(ms_per_step=0.25, share=0.057, kind=CostKind.OBSERVED), "250 us a step, 6% of steady state (observed)"),
    (Cost(seconds=2.0, kind=CostKind.ESTIMATED, note="short"), "2.0 s (estimated, short)"),
    (Cost(seconds=2.0, kind=CostKind.OBSERVED, note="x" * 99), "2.0 s (observed)"),
])
def test_a_cost_says_whether_it_was_observed_or_estimated(cost: Cost, expected: str) -> None:
    assert cost_text(cost) == expected


@pytest.mark.parametrize(("seconds", "expected"), [
    (61.2, "61 s"), (10.0, "10 s"), (1.24, "1.2 s"), (1.0, "1.0 s"), (0.999, "999 ms"), (0.0742, "74 ms"), (0.0012, "1.2 ms"),
    (0.000012, "12 us"),
])
def test_a_duration_has_two_digits_that_mean_something(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(("number", "expected"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (None, "0 steps")])
def test_a_count_agrees_with_its_word(number: int | None, expected: str) -> None:
    assert counted(number, "step") == expected


@pytest.mark.parametrize(("path", "expected"), [
    ("/app/net/model.py", "net/model.py"), ("net/model.py", "net/model.py"), ("/app/.venv/lib/python3.11/site-packages/timm/x.py", None),
    ("/usr/lib/python3.11/contextlib.py", None), ("/application/model.py", None), ("../model.py", None), ("<string>", None),
    ("/app/venv/Lib/site-packages/timm/x.py", None),
    ("C:\\app\\model.py", None), ("unknown", None), ("", None),
])
def test_a_file_of_the_project_is_named_as_the_repository_names_it(path: str, expected: str | None) -> None:
    assert project_path(path, {"cwd": "/app"}) == expected


def test_the_working_folder_may_be_the_root_or_on_windows() -> None:
    assert project_path("/train.py", {"cwd": "/"}) == "train.py"
    assert project_path("C:\\app\\net\\model.py", {"cwd": "C:\\app\\"}) == "net/model.py"


def test_severities_are_counted_worst_first_as_they_come() -> None:
    assert by_severity([a_finding(severity=Severity(n)) for n in (1, 1, 3)]) == "2 P1, 1 P3"
