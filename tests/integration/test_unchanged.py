"""A program observes the same about itself, its process and its instruments with and without torchtriage."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import environment

SCRIPT = Path(__file__).parent.parent / "unchanged_programs.py"
NAMES = re.findall(r"^@program\ndef (\w+)", SCRIPT.read_text(), re.M)     # without an import of torch

pytestmark = pytest.mark.thorough


def run(folder: Path, **variables: str) -> dict[str, list[Any]]:
    """[status, stdout, stderr] of every program."""
    folder.mkdir()
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder)], cwd=folder, env=environment(variables),
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return run(tmp_path_factory.mktemp("alone") / "here")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("ours")
    outcome = run(folder / "here", TORCHTRIAGE=str(folder / "out.triage"))
    assert len(list((folder / "out.triage").glob("*.sqlite"))) > 20      # the programs were observed
    return outcome


@pytest.mark.parametrize("name", NAMES)
def test_the_program_is_unchanged(name: str, alone: dict[str, list[Any]], observed: dict[str, list[Any]]) -> None:
    for what, expected, found in zip(("status", "stdout", "stderr"), alone[name], observed[name], strict=True):
        assert found == expected, what
