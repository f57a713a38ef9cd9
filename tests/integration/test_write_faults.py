"""Whichever write of the recorder fails, the program is unchanged, and what was lost is reported."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import environment

TESTS = Path(__file__).parent.parent
ALL = ["0", "1", "2", "3"]

pytestmark = [
    pytest.mark.thorough, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "write_faults.so"
    source = TESTS / "write_faults.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(source), "-ldl"], check=True, timeout=600)
    return path


@pytest.mark.parametrize("name", ["ENOSPC", "EIO", "EROFS", "EINTR", "short"])
def test_no_failed_write_reaches_the_program(name: str, library: Path, tmp_path: Path) -> None:
    error = 0 if name == "short" else getattr(errno, name)
    persists = name in ("ENOSPC", "EIO", "EROFS")
    path = os.pathsep.join(filter(None, (str(TESTS.parent / "src"), os.environ.get("PYTHONPATH"))))
    variables = {"LD_PRELOAD": str(library), "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(TESTS / "write_fault_program.py"), str(tmp_path), str(error), str(int(persists))],
        env=environment(variables), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) > 20        # the recorder writes more often than that
    assert results[-1]["status"] == 101
    assert results[-1]["seen"] == ALL
    for number, result in enumerate(results[:-1], start=1):
        assert (result["status"], result["stdout"]) == (100, "before\nafter\n"), (number, result)
        assert result["seen"] == ALL or result["said"] or result["stderr"], (number, result)
        assert sorted(set(result["seen"])) == sorted(result["seen"]), (number, result)     # nothing twice
