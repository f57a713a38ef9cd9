"""The soak, in a version of seconds: it runs to its end and prints its table."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.thorough
def test_a_short_soak_stays_within_its_bounds() -> None:
    words = ["--steps", "20000", "--recompiles", "140", "--marks", "4", "--minutes", "5"]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "benchmarks/soak.py", *words], cwd=ROOT, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line.split() for line in done.stdout.splitlines()]
    assert [row[:2] for row in table[2:-1]][-1] == ["20000", "140"]
    assert len(table) == 2 + 4 + 1
