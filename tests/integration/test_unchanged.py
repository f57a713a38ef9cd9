"""A program observes the same about itself, its process and its instruments with and without torchtriage."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import TORCHTRIAGE, command, environment, write
from torchtriage.commands.main import main
from torchtriage.launch import launcher_file

SCRIPT = Path(__file__).parent.parent / "unchanged_programs.py"
NAMES = re.findall(r"^@program\ndef (\w+)", SCRIPT.read_text(), re.M)     # without an import of torch

thorough = pytest.mark.thorough


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


@thorough
@pytest.mark.parametrize("name", NAMES)
def test_the_program_is_unchanged(name: str, alone: dict[str, list[Any]], observed: dict[str, list[Any]]) -> None:
    assert observed[name][0] == alone[name][0], observed[name]
    for expected, found in zip(alone[name][1:], observed[name][1:], strict=True):
        assert comparable(found) == comparable(expected)


def comparable(text: str) -> list[str]:
    """The lines without times, addresses and process ids."""
    text = re.sub(r"^W\d{4} [\d:.]+ +\d+|^USDT:[\d :-]+", "", text, flags=re.M)
    return re.sub(r"0x[0-9a-f]+", "N", text).splitlines()


# The folder and stderr of a run

@pytest.mark.parametrize(("status", "expected"), [(0, 2), (5, 5)])
def test_a_deleted_folder_is_reported_and_a_failure_of_the_program_kept(
    status: int, expected: int, tmp_path: Path,
) -> None:
    write(tmp_path, f"""\
import os, shutil, sys
while os.path.exists(os.environ["TORCHTRIAGE"]):  # the recorder's thread may be writing into it
    shutil.rmtree(os.environ["TORCHTRIAGE"], ignore_errors=True)
sys.exit({status})
""")
    done = command(tmp_path, "run", "-o", "out", "train.py")
    assert done.returncode == expected, done.stderr
    assert "out.triage was deleted or moved while the program ran" in done.stderr
    assert done.stdout == ""


STREAMS = """\
import os, sys
open("seen", "w").write(repr([stream is None for stream in (sys.stdin, sys.stdout, sys.stderr)]))
print("ran")
sys.exit(3)
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_closed_for_the_program(closed: str, tmp_path: Path) -> None:
    write(tmp_path, STREAMS)
    seen = []
    for words in ([sys.executable], [*TORCHTRIAGE, "run", "-q", "-f", "-o", "out"]):
        done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words, "train.py"], cwd=tmp_path,
                              env=environment(), capture_output=True, text=True, timeout=600)
        assert "Traceback" not in done.stderr
        seen.append((done.returncode, (tmp_path / "seen").read_text()))
    assert seen[0] == seen[1]


def test_a_full_disk_at_the_end_keeps_the_status_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(writer: object, code: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launcher_file, "end", fail)
    write(tmp_path, "import sys; sys.exit(3)")
    assert main(["run", "-o", str(tmp_path / "out"), str(tmp_path / "train.py")]) == 3
    assert "cannot write how the run ended: [Errno 28] No space left on device" in capsys.readouterr().err


def test_a_report_to_a_full_device_is_refused_with_a_message(tmp_path: Path) -> None:
    write(tmp_path, "print('ran')")
    command(tmp_path, "run", "-o", "out", "train.py")
    with open("/dev/full", "w") as full:
        done = subprocess.run([*TORCHTRIAGE, "report", "out.triage"], cwd=tmp_path, env=environment(), stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=600)
    assert done.returncode == 2
    assert done.stderr == "torchtriage: cannot write to stdout: No space left on device\n"


def test_with_stderr_closed_no_message_goes_to_stdout(tmp_path: Path) -> None:
    write(tmp_path, "import os; print('ran'); os.write(os.open('data', os.O_RDWR | os.O_CREAT), b'own')")
    words = [*TORCHTRIAGE, "run", "-o", "out", "--select", "TT1", "train.py"]
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *words], cwd=tmp_path, env=environment(),
                          stdout=subprocess.PIPE, text=True, timeout=600)
    assert done.returncode == 0
    assert done.stdout.startswith("ran\n")
    assert "torchtriage:" not in done.stdout
    assert (tmp_path / "data").read_bytes() == b"own"
