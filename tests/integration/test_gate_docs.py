"""docs/guides/gate.md is correct: its first example and every command of its workflow do what the page says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import Done, environment, write

pytestmark = pytest.mark.thorough

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "gate.md").read_text()
MODEL = """
def policy(x):
    x = x * 2
    return x + 1
"""
TRAIN = """
import sys
import torch
from model import policy

assert sys.argv[1:] == ["--steps", "20"]
compiled = torch.compile(policy, backend="eager", dynamic=False)
for step in range(20):
    compiled(torch.ones(4 + step // 18))
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def workflow_commands() -> list[str]:
    """The `run:` commands of the workflow, one per line."""
    [workflow] = blocks("yaml")
    lines = re.findall(r"^ +(?:- )?run: (?!\|)(.+)$|^ {10}(\S.*)$", workflow, re.M)
    return [one or many for one, many in lines if not one.startswith("pip ") and ": " not in many]


def shell(folder: Path, line: str) -> Done:
    """The line as a shell runs it where torchtriage is installed."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return subprocess.run(
        line, shell=True, cwd=folder, env=environment({"PATH": path}), capture_output=True, text=True, timeout=600
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, MODEL, "model.py")
    write(tmp_path, TRAIN, "train.py")
    write(tmp_path, blocks("python")[0], "test_policy.py")
    write(tmp_path, "[pytest]\npythonpath = .\n", "pytest.ini")
    return tmp_path


def test_the_workflow_passes_accepted_findings_and_fails_on_new_ones(project: Path) -> None:
    [first_time] = blocks("sh")
    for line in first_time.splitlines():
        done = shell(project, line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    for recording in project.glob("*.triage"):      # as in a fresh checkout
        shutil.rmtree(recording)
    commands = workflow_commands()
    assert [line.split()[:2] for line in commands] == [
        ["pytest", "--torchtriage"], ["torchtriage", "run"], *[["torchtriage", "report"]] * 3,
    ]
    for line in commands:
        done = shell(project, line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert "::warning" not in done.stdout
    assert (project / "train.sarif").is_file()

    write(project, MODEL.replace("x = x * 2", "x = x * 2\n    print(x)"), "model.py")
    failed = shell(project, commands[0])
    assert failed.returncode == 1
    assert "limit_graph_breaks(0): 2 graph breaks at 1 place" in failed.stdout      # as the page says
    assert "limit_graph_breaks(0): 2 graph breaks at 1 place" in PAGE
