"""`torchtriage lint` as a user calls it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import TORCHTRIAGE, Done, environment, write

ROOT = Path(__file__).parent.parent.parent
SICK = """
import torch

@torch.compile(backend="eager")
def step(x):
    y = x * 2
    print("mean", y.mean())
    return y + 1

step(torch.ones(4))
"""
HEALTHY = """
import torch

@torch.compile(backend="eager")
def step(x):
    return x * 2 + 1

print(step(torch.ones(4)).mean().item())
"""


def lint(folder: Path, *words: str) -> Done:
    return subprocess.run(
        [*TORCHTRIAGE, "lint", *words], cwd=folder, env=environment(), capture_output=True, text=True, timeout=600
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, SICK, "sick.py")
    write(tmp_path, HEALTHY, "healthy.py")
    return tmp_path


def test_the_exit_code_says_whether_a_finding_is_at_the_threshold(project: Path) -> None:
    assert lint(project, "--fail-on", "P3").returncode == 1
    assert lint(project, "--fail-on", "P2").returncode == 0
    assert lint(project, "healthy.py", "--fail-on", "P4").returncode == 0
    assert lint(project, "nowhere.py").returncode == 2


def test_a_healthy_file_says_what_was_read(project: Path) -> None:
    done = lint(project, "healthy.py")
    assert "0 findings in 1 file, 1 torch.compile call, 1 function reached by them" in done.stdout


def test_a_baseline_accepts_what_is_there_today(project: Path) -> None:
    assert lint(project, "--baseline", "known.json", "--update-baseline").returncode == 0
    done = lint(project, "--baseline", "known.json", "--fail-on", "P4")
    assert done.returncode == 0
    assert "1 known finding" in done.stdout


def test_the_configuration_ignores_codes_per_file(project: Path) -> None:
    write(project, '[tool.torchtriage.per-file-ignores]\n"sick.py" = ["TT101"]\n', "pyproject.toml")
    assert json.loads(lint(project, "--format", "json").stdout)["findings"] == []


def test_sarif_names_the_place(project: Path) -> None:
    [run] = json.loads(lint(project, "--format", "sarif").stdout)["runs"]
    [result] = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("TT101", "sick.py", 6)


def test_the_problem_matcher_of_the_docs_reads_every_finding(project: Path) -> None:
    [block] = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "guides" / "lint.md").read_text(), re.S)
    pattern = json.loads(block)["pattern"]
    lines = [line for line in lint(project, "--format", "github").stdout.splitlines() if "file=" in line]
    [match] = [re.match(pattern["regexp"], line) for line in lines]
    assert match is not None
    assert (match[pattern["file"]], match[pattern["line"]]) == ("sick.py", "6")
    assert "a compiled function that prints" in match[pattern["message"]]


def test_the_hook_for_pre_commit_fails_on_a_sick_file_alone(project: Path) -> None:
    [entry] = re.findall(r"^ +entry: torchtriage (.+)$", (ROOT / ".pre-commit-hooks.yaml").read_text(), re.M)
    command = [sys.executable, "-m", "torchtriage", *entry.split()]
    for name, status in (("sick.py", 1), ("healthy.py", 0)):
        done = subprocess.run(
            [*command, name], cwd=project, env=environment(), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == status, done.stderr


@pytest.mark.thorough
def test_fix_makes_the_safe_edits_and_shows_what_is_left(project: Path) -> None:
    """Only in a committed file; a program may read what self.log() keeps, so that stays."""
    source = SICK.replace("    return", "    module.log(y.mean().item())\n    return")
    write(project, source, "sick.py")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    write(project, source + "# changed\n", "sick.py")
    refused = lint(project, "sick.py", "--fix")
    assert refused.returncode == 2
    assert "uncommitted changes" in refused.stderr
    done = lint(project, "sick.py", "--fix", "--force")
    assert "1 safe edit made in 1 file" in done.stderr
    fixed = (project / "sick.py").read_text()
    assert fixed == (source + "# changed\n").lstrip("\n").replace(
        '    print("mean"', '    if not torch.compiler.is_compiling():\n        print("mean"')
    assert "TT101" not in done.stdout
    assert "TT104" in done.stdout


def test_a_finding_of_the_source_and_of_the_run_is_one(project: Path) -> None:
    subprocess.run(
        [*TORCHTRIAGE, "run", "-q", "-o", "run.triage", "sick.py"], cwd=project, env=environment(), timeout=600
    )
    joined = lint(project, "sick.py", "--recording", "run.triage", "--format", "json")
    [seen] = json.loads(joined.stdout)["findings"]
    report = [*TORCHTRIAGE, "report", "run.triage", "--format", "json"]
    done = subprocess.run(report, cwd=project, env=environment(), capture_output=True, text=True, timeout=600)
    [ran] = json.loads(done.stdout)["findings"]
    [alone] = json.loads(lint(project, "sick.py", "--format", "json").stdout)["findings"]
    assert seen["fingerprint"] == ran["fingerprint"] == alone["fingerprint"]
    assert "seen in this run" in seen["cause"]
    assert seen["cost"] == ran["cost"]


@pytest.mark.thorough
def test_our_own_source_has_no_finding() -> None:
    done = lint(ROOT, "src")
    assert (done.returncode, done.stdout.splitlines()[0].split(" in ")[0]) == (0, "0 findings"), done.stdout
