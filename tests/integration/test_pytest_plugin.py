"""The pytest plugin as a project uses it: pytest runs inside pytest, and its exit code and output are checked."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.programs import command, environment, write

pytest_plugins = ["pytester"]

OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED) (?:\[\d+\] )?\S+?(?:::|:\d+: )(\S+)", re.M)
HEAD = """
import pytest, torch

def breaking(x):
    x = x + 1
    print("out")
    return x * 2

def accepted(x):
    x = x + 1
    print("out")  # torchtriage: ignore[TT101] wanted here
    return x * 2

def double(x):
    return x * 2

shared = torch.compile(breaking, backend="eager")
X = torch.ones(2)

def sizes(*numbers, function=double):
    compiled = torch.compile(function, backend="eager", dynamic=False)
    for number in numbers:
        compiled(torch.ones(number))
"""


@dataclass
class Session:
    """How an inner pytest ended."""

    exit_code: int
    text: str

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: outcome for outcome, name in OUTCOME.findall(self.text)}

    def failure(self, name: str) -> str:
        """What pytest shows of one failed test."""
        parts = re.split(r"^_{3,} (?:ERROR at setup of )?(\S+) _{3,}$", self.text, flags=re.M)
        return parts[parts.index(name) + 1]

    def section(self) -> list[str]:
        """The lines of torchtriage's summary."""
        return (
            re.split(r"^=+ .* =+$", re.split(r"^=+ torchtriage =+$", self.text, flags=re.M)[1], flags=re.M)[0]
            .strip()
            .splitlines()
        )


def run_pytest(folder: Path, *words: str, env: dict[str, str] | None = None) -> Session:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=600,
    )
    return Session(done.returncode, done.stdout + done.stderr)


# Markers

CONFTEST = """
import asyncio, inspect
import pytest

resets, running = [], ["nothing"]

def pytest_runtestloop():
    import torch._dynamo
    original = torch._dynamo.reset
    def reset():
        resets.append(running[-1])
        original()
    torch._dynamo.reset = reset

def pytest_runtest_logstart(nodeid):
    running.append(nodeid.rpartition("::")[2])

def pytest_unconfigure():
    print("\\nRESETS", resets)

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
"""
MARKED = (
    HEAD
    + """
import unittest
limit_graph_breaks, limit_recompiles, limit_findings = (
    pytest.mark.limit_graph_breaks, pytest.mark.limit_recompiles, pytest.mark.limit_findings)

@limit_graph_breaks(0)
def test_break():
    shared(X)

@limit_graph_breaks(0)
def test_break_compiled_by_a_test_before():
    shared(X)

@limit_graph_breaks(1)
def test_break_within_the_limit():
    shared(X)

@limit_graph_breaks(0, allow=["print-in-graph"])
def test_break_allowed_by_slug():
    shared(X)

@limit_graph_breaks(0, allow=["test_marked.py::breaking"])
def test_break_allowed_by_place():
    shared(X)

@limit_graph_breaks(0)
def test_break_accepted_by_a_comment():
    torch.compile(accepted, backend="eager")(X)

@limit_recompiles(1, warmup=2)
def test_three_sizes():
    sizes(2, 3, 4)

@limit_recompiles(1, warmup=2)
def test_four_sizes():
    sizes(2, 3, 4, 5)

@limit_recompiles(0)
def test_recompiles_after_a_break():
    sizes(2, 3, function=breaking)

@limit_recompiles(50)
@torch._dynamo.config.patch(recompile_limit=2)
def test_limit_of_torch():
    sizes(2, 3, 4, 5)

@limit_findings("P2")
def test_storm():
    sizes(2, 3, 4, 5)

@limit_findings("P1")
def test_storm_is_not_p1():
    sizes(2, 3, 4, 5)

@limit_graph_breaks(0)
@limit_recompiles(0)
@limit_findings("P0")
def test_two_of_three():
    sizes(2, 3, function=breaking)

@limit_graph_breaks(0)
class TestOfAClass:
    def test_inherits(self):
        shared(X)

    @limit_graph_breaks(1)
    def test_the_closest_wins(self):
        shared(X)

@limit_recompiles(0)
@pytest.mark.parametrize(
    "numbers", [(2,), (2, 3), pytest.param((2, 3, 4), marks=limit_recompiles(2))], ids=["one", "two", "three"],
)
def test_parameters(numbers):
    sizes(*numbers)

@limit_graph_breaks(0)
def test_own_failure():
    shared(X)
    raise KeyError("mine")

@limit_graph_breaks(0)
@pytest.mark.xfail(strict=True, reason="known")
def test_expected_to_exceed():
    shared(X)

@limit_graph_breaks(1)
@pytest.mark.xfail(strict=True, reason="known")
def test_expected_to_exceed_and_does_not():
    shared(X)

@limit_graph_breaks(0)
def test_skips_itself():
    shared(X)
    pytest.skip("not here")

@limit_graph_breaks("none")
@pytest.mark.skip
def test_skipped_before_anything():
    pass

@limit_graph_breaks(0)
async def test_async():
    shared(X)

class TestUnit(unittest.TestCase):
    @limit_graph_breaks(0)
    def test_method(self):
        shared(X)

    @limit_graph_breaks(0)
    def test_method_fails(self):
        shared(X)
        self.assertEqual(1, 2)

@pytest.fixture
def warm():
    return shared(X)

@limit_graph_breaks(0)
def test_what_a_fixture_compiled(warm):
    shared(X)

@limit_recompiles(0, warmup=2)
def test_warm_up_counts_what_a_fixture_compiled(warm):
    torch._dynamo.mark_static(X, 0)
    shared(torch.ones(5))

def test_fixture(triage):
    assert not triage.graph_breaks
    shared(X)
    sizes(2, 3)
    assert [len(triage.graph_breaks), len(triage.recompiles), triage.limits] == [1, 1, []]
    assert {f.code for f in triage.findings} == {"TT101", "TT202"}

@limit_graph_breaks(1)
def test_fixture_and_marker(triage):
    shared(X)
    assert len(triage.graph_breaks) == 1

def test_fixture_asked_for_late(request):
    shared(X)
    triage = request.getfixturevalue("triage")
    torch.compile(accepted, backend="eager")(X)
    assert [b.function for b in triage.graph_breaks] == ["accepted"]

def test_fixture_as_a_message(triage):
    shared(X)
    assert not triage.graph_breaks, triage

def test_fixture_without_a_message(triage):
    shared(X)
    assert triage.findings == []

def test_unmarked():
    shared(X)

@limit_graph_breaks(-1)
def test_negative():
    pass

@limit_recompiles(1, warm=2)
def test_unknown_keyword():
    pass

@limit_findings("P9")
def test_unknown_severity():
    pass

@limit_graph_breaks(0, allow=["print-in-grahp"])
def test_unknown_rule():
    pass
"""
)
MODULE_MARK = HEAD + """
pytestmark = [pytest.mark.limit_graph_breaks(0), pytest.mark.limit_recompiles(0)]

def test_of_a_module():
    shared(X)

@pytest.mark.limit_graph_breaks(1)
def test_closer_than_the_module():
    shared(X)
"""


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("marked")
    for name, source in (("conftest.py", CONFTEST), ("test_marked.py", MARKED), ("test_module_mark.py", MODULE_MARK)):
        write(folder, source, name)
    return run_pytest(folder, "-rA", "--strict-markers")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("test_break", "FAILED"), ("test_break_compiled_by_a_test_before", "FAILED"),
        ("test_break_within_the_limit", "PASSED"), ("test_break_allowed_by_slug", "PASSED"),
        ("test_break_allowed_by_place", "PASSED"), ("test_break_accepted_by_a_comment", "PASSED"),
        ("test_three_sizes", "PASSED"), ("test_four_sizes", "FAILED"), ("test_recompiles_after_a_break", "FAILED"),
        ("test_limit_of_torch", "FAILED"), ("test_storm", "FAILED"), ("test_storm_is_not_p1", "PASSED"),
        ("test_two_of_three", "FAILED"), ("TestOfAClass::test_inherits", "FAILED"),
        ("TestOfAClass::test_the_closest_wins", "PASSED"), ("test_parameters[one]", "PASSED"),
        ("test_parameters[two]", "FAILED"), ("test_parameters[three]", "PASSED"), ("test_own_failure", "FAILED"),
        ("test_expected_to_exceed", "XFAIL"), ("test_expected_to_exceed_and_does_not", "FAILED"),
        ("test_async", "FAILED"), ("TestUnit::test_method", "FAILED"), ("TestUnit::test_method_fails", "FAILED"),
        ("test_what_a_fixture_compiled", "PASSED"), ("test_warm_up_counts_what_a_fixture_compiled", "PASSED"),
        ("test_fixture", "PASSED"), ("test_fixture_and_marker", "PASSED"), ("test_fixture_asked_for_late", "PASSED"),
        ("test_unmarked", "PASSED"), ("test_of_a_module", "FAILED"), ("test_closer_than_the_module", "PASSED"),
        ("test_negative", "ERROR"), ("test_unknown_keyword", "ERROR"), ("test_unknown_severity", "ERROR"),
        ("test_unknown_rule", "ERROR"),
    ],
)
def test_the_outcome_of_a_marked_test_follows_its_limits(marked: Session, name: str, outcome: str) -> None:
    assert marked.outcomes.get(name) == outcome, marked.text


def test_exceeded_limits_fail_the_session_and_skipped_tests_stay_skipped(marked: Session) -> None:
    assert marked.exit_code == pytest.ExitCode.TESTS_FAILED
    assert "2 skipped" in marked.text
    assert "INTERNALERROR" not in marked.text
    assert "Warning" not in marked.text


def test_a_failure_names_the_limit_and_then_shows_the_finding(marked: Session) -> None:
    lines = marked.failure("test_break").strip().splitlines()
    assert lines[0] == "limit_graph_breaks(0): 1 graph break at 1 place"
    assert lines[2].startswith("TT101 P3  print() breaks breaking")
    assert lines[3].split() == ["-->", "test_marked.py:5", "in", "breaking"]
    assert any(line.startswith("  fix ") for line in lines)
    assert "torchtriage explain TT101" in marked.failure("test_break")
    assert "torch.__trace" not in marked.failure("test_break")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_four_sizes", "limit_recompiles(1, warmup=2): 2 recompiles after the warm-up"),
        ("test_recompiles_after_a_break", "limit_recompiles(0): 2 recompiles"),
        ("test_limit_of_torch", "limit_recompiles(50): 1 recompile, and 1 frame at torch's recompile limit"),
        ("test_storm", "limit_findings('P2'): 1 finding at P2 or worse"),
        (
            "test_two_of_three",
            "limit_graph_breaks(0): 2 graph breaks at 1 place\nlimit_recompiles(0): 2 recompiles\n\n",
        ),
        ("test_expected_to_exceed_and_does_not", "[XPASS(strict)] known"),
        (
            "test_negative",
            "limit_graph_breaks(-1): the number of graph breaks must be 0 or more, got -1; "
            "write it like limit_graph_breaks(0",
        ),
        (
            "test_unknown_keyword",
            "limit_recompiles(1, warm=2): got an unexpected keyword argument 'warm'; write it like limit_recompiles(1",
        ),
        (
            "test_unknown_severity",
            "limit_findings('P9'): the severity must be P0, P1, P2, P3, P4, got 'P9'; "
            "write it like limit_findings('P2'",
        ),
        ("test_unknown_rule", "no rule or place 'print-in-grahp' for allow, did you mean 'print-in-graph'?"),
        ("test_fixture_as_a_message", "AssertionError: <1 finding: TT101 at test_marked.py:5>"),
    ],
)
def test_a_failed_test_shows_its_limit(marked: Session, name: str, said: str) -> None:
    assert said in marked.failure(name)


@pytest.mark.parametrize("name", ["test_fixture_as_a_message", "test_fixture_without_a_message"])
def test_a_failed_test_with_the_fixture_shows_its_findings_in_full(marked: Session, name: str) -> None:
    _, findings = re.split(r"^-+ torchtriage -+$", marked.failure(name), flags=re.M)
    lines = findings.strip().splitlines()
    assert lines[0].startswith("TT101 P3  print() breaks breaking")
    assert any(line.startswith("  why ") for line in lines)
    assert any(line.startswith("  fix ") for line in lines)
    assert "more  torchtriage explain TT101" in findings


@pytest.mark.parametrize(("name", "own"), [
    ("test_own_failure", "KeyError: 'mine'"), ("TestUnit.test_method_fails", "AssertionError: 1 != 2"),
])
def test_a_failing_test_shows_its_failure_and_its_exceeded_limits(marked: Session, name: str, own: str) -> None:
    before, after = re.split(r"^-+ torchtriage -+$", marked.failure(name), flags=re.M)
    assert own in before
    assert after.strip().startswith("limit_graph_breaks(0): 1 graph break at 1 place")


def test_dynamo_is_reset_only_around_watched_tests(marked: Session) -> None:
    resets = re.search(r"^RESETS (.*)$", marked.text, re.M)
    assert resets is not None
    names = json.loads(resets[1].replace("'", '"'))
    counts = {name: names.count(name) for name in ("test_break", "test_fixture", "test_unmarked", "test_negative")}
    assert counts == {"test_break": 2, "test_fixture": 2, "test_unmarked": 0, "test_negative": 0}


# Without torch

PLAIN = """
import pytest

def test_plain():
    pass
"""
SAY_WHETHER_TORCH = """
import sys

def pytest_unconfigure():
    print("TORCH", "torch" in sys.modules, sorted(name for name in sys.modules if name.startswith("torchtriage")))
"""


def clean(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in [name for name in os.environ if name.startswith("TORCHTRIAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    return pytester


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose only test has nothing to do with torch."""
    pytester.makeconftest(SAY_WHETHER_TORCH)
    pytester.makepyfile(test_plain=PLAIN)
    return clean(pytester, monkeypatch)


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["--collect-only"], ["-q"], ["--strict-markers", "-W", "error"]])
def test_the_plugin_loads_neither_torch_nor_the_rest_of_torchtriage(project: pytest.Pytester, words: list[str]) -> None:
    done = project.runpytest_subprocess(*words)
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines(
        "TORCH False ['torchtriage', 'torchtriage.integrations', 'torchtriage.integrations.pytest_plugin']"
    )


def test_pytest_lists_the_markers_options_and_fixture(project: pytest.Pytester) -> None:
    markers = project.runpytest_inprocess("--markers").stdout.str()
    for name in ("limit_graph_breaks(most, *", "limit_recompiles(most, *, warmup=0", "limit_findings(severity, *"):
        assert f"@pytest.mark.{name}" in markers
    text = project.runpytest_inprocess("--help").stdout.str()
    for name in (
        "--torchtriage ", "--torchtriage-output=NAME.triage", "--torchtriage-fail-on=P0..P4|never",
        "--torchtriage-baseline=FILE", "torchtriage_output", "torchtriage_fail_on", "torchtriage_baseline",
    ):
        assert name in text
    assert "triage" in project.runpytest_inprocess("--fixtures").stdout.str()


def test_the_plugin_can_be_switched_off(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_marked="import pytest\n\n@pytest.mark.limit_graph_breaks('nonsense')\ndef test_x():\n    pass\n"
    )
    assert project.runpytest_inprocess("-p", "no:torchtriage").ret == pytest.ExitCode.OK
    assert project.runpytest_inprocess("-p", "no:torchtriage", "--torchtriage").ret == pytest.ExitCode.USAGE_ERROR


def test_a_project_fixture_named_triage_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile(test_ward="""
        import pytest

        @pytest.fixture
        def triage():
            return "red"

        def test_x(triage):
            assert triage == "red"
        """)
    done = project.runpytest_subprocess()
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines("TORCH False *")


def test_a_marked_test_without_torch_says_what_it_needs(project: pytest.Pytester) -> None:
    project.makepyfile(test_marked="""
        import sys
        import pytest
        sys.modules["torch"] = None

        @pytest.mark.limit_graph_breaks(0)
        def test_x():
            pass
        """)
    done = project.runpytest_subprocess()
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines("a limit marker and the fixture triage need torch, got *; install it, or skip the test")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--torchtriage-fail-on", "P9"],
            "*torchtriage: --torchtriage-fail-on, or *, must be P0, P1, P2, P3, P4 or never, got 'P9'",
        ),
        (
            ["--torchtriage-baseline", "no.json"],
            "*torchtriage: no baseline at *no.json; make one*torchtriage report *--update-baseline",
        ),
        (
            ["--torchtriage-output", "mine.triage"],
            "*torchtriage: *mine.triage exists and is not a recording (thesis.txt *); it is left alone, name another*",
        ),
        (
            ["--torchtriage-output", "test_plain.py/x"],
            "*torchtriage: cannot write *test_plain.py/x.triage: *; name another*",
        ),
    ],
)
def test_a_wrong_option_is_a_usage_error_before_any_test(project: pytest.Pytester, words: list[str], said: str) -> None:
    project.mkdir("mine.triage").joinpath("thesis.txt").write_text("years of work")
    done = project.runpytest_inprocess(*words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(said)
    assert project.path.joinpath("mine.triage/thesis.txt").read_text() == "years of work"


def test_a_suite_that_never_imports_torch_does_not_pass_a_gate(project: pytest.Pytester) -> None:
    """And pytest's own questions leave the recording alone."""
    done = project.runpytest_subprocess("--torchtriage-fail-on=P2", "-p", "no:cacheprovider")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(
        [
            "torchtriage: recording into pytest.triage", "TT903 P2  torch was never imported",
            "failed: 1 finding at P2 or worse", "next: torchtriage report pytest.triage", "TORCH False *",
        ]
    )
    before = sorted(path.stat().st_mtime_ns for path in project.path.glob("pytest.triage/*"))
    for words in (["--collect-only"], ["--help"], ["--markers"]):
        assert project.runpytest_inprocess("--torchtriage", *words).ret == pytest.ExitCode.OK
    assert sorted(path.stat().st_mtime_ns for path in project.path.glob("pytest.triage/*")) == before
    assert before


def test_the_recording_fails_the_session_even_without_a_terminal(project: pytest.Pytester) -> None:
    assert (
        project.runpytest_subprocess("--torchtriage-fail-on=P2", "-p", "no:terminal").ret
        == pytest.ExitCode.TESTS_FAILED
    )


# The full suite

SUITE = HEAD + """
import os, subprocess, sys

@pytest.mark.parametrize("number", range(4))
def test_breaks(number):
    shared(X)

@pytest.mark.limit_graph_breaks(0)
def test_marked():
    shared(X)

def test_children_join():
    assert os.environ["TORCHTRIAGE"].endswith(".triage")
"""


INI = """
[pytest]
torchtriage_fail_on = P3
torchtriage_output = runs/all
"""
SAY_WHAT_IS_LEFT = """
import atexit, os
atexit.register(lambda: print("LEFT", [name for name in os.environ if name.startswith("TORCHTRIAGE")]))
"""


def report_of(folder: Path, name: str) -> dict[str, Any]:
    done = command(folder, "report", name, "--format", "json", "--events")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session]:
    """A suite with ini keys, recorded once, and a baseline made of that."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, source in (("test_suite.py", SUITE), ("pytest.ini", INI), ("conftest.py", SAY_WHAT_IS_LEFT)):
        write(folder, source, name)
    (folder / "runs").mkdir()
    session = run_pytest(folder, "--torchtriage", "-rA", "-k", "not marked")
    done = command(folder, "report", "runs/all.triage", "--baseline", "triage.json", "--update-baseline")
    assert done.returncode == 0, done.stderr
    return folder, session


def test_a_recorded_suite_shows_its_findings_and_fails(recorded: tuple[Path, Session]) -> None:
    folder, session = recorded
    assert session.exit_code == pytest.ExitCode.TESTS_FAILED
    assert set(session.outcomes.values()) == {"PASSED"}
    first, totals, *rest = session.section()
    assert first.startswith("TT101 P3  print() breaks breaking")
    assert first.endswith("   test_suite.py:5")
    assert re.match(r"1 finding, 2 compiles, 0 recompiles, 1 graph break at 1 place, .* compiling", totals)
    assert rest == ["failed: 1 finding at P3 or worse", "next: torchtriage report runs/all.triage"]
    assert "LEFT []" in session.text
    run = report_of(folder, "runs/all.triage")["run"]
    assert (run["argv"][:2], run["exit_status"]) == (["pytest", "-p"], 0)


@pytest.mark.thorough
def test_a_suite_inside_an_observed_run_is_recorded_once(recorded: tuple[Path, Session]) -> None:
    folder, _ = recorded
    done = command(
        folder,
        "run", "-q", "-o", "outer.triage", "--",
        sys.executable,
        "-m", "pytest", "-x", "-p", "no:cacheprovider", "--deselect", "test_suite.py::test_marked",
        "--torchtriage-baseline", "triage.json",
    )
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    session = Session(done.returncode, done.stdout)
    lines = session.section()
    assert "1 known finding accepted by the baseline" in lines
    assert "recorded by the enclosing run, into outer.triage" in lines
    assert "5 passed" in session.text
    assert "Warning" not in session.text
    report = report_of(folder, "outer.triage")
    assert (report["run"]["num_processes"], report["totals"]["graph_breaks"]) == (1, 1)
    assert report_of(folder, "runs/all.triage")["run"]["exit_status"] == 0      # the earlier recording is untouched


@pytest.mark.thorough
def test_xdist_workers_record_into_one_folder(recorded: tuple[Path, Session]) -> None:
    folder, _ = recorded
    session = run_pytest(folder, "-n", "2", "-rA", "--torchtriage-output", "all.triage", "--torchtriage-fail-on", "P3")
    assert session.exit_code == pytest.ExitCode.TESTS_FAILED
    passed = [*(f"test_breaks[{number}]" for number in range(4)), "test_children_join"]
    assert session.outcomes == {**dict.fromkeys(passed, "PASSED"), "test_marked": "FAILED"}
    assert "limit_graph_breaks(0): 1 graph break at 1 place" in session.failure("test_marked")
    assert session.text.count("= torchtriage =") == 1
    assert session.section()[-2:] == ["failed: 1 finding at P3 or worse", "next: torchtriage report all.triage"]
    assert "Warning" not in session.text
    report = report_of(folder, "all.triage")
    assert report["run"]["num_processes"] == 2
    assert [f["code"] for f in report["findings"]] == ["TT101"]


@pytest.mark.thorough
def test_a_process_can_record_only_one_suite(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "test_plain.py")
    script = write(tmp_path, """
        import pytest
        print("ENDED", [int(pytest.main(["-q", "--torchtriage"])) for _ in range(2)])
        """, "twice.py")
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600
    )
    assert "ENDED [0, 4]" in done.stdout
    assert (
        "this process has recorded a suite before, and can record only one; start pytest in a new process"
        in done.stderr
    )
