"""One run has its own process, cache and time limit; its input and its files are known."""

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from torchtriage.capture.policy.policy import ForcedPolicy
from torchtriage.launch import environment
from torchtriage.proof.runs import process as running
from torchtriage.proof.runs import surroundings as inputs
from torchtriage.proof.runs.process import Program, RunOutcome, run_once
from torchtriage.proof.runs.surroundings import checked_cache, file_times, kept_stdin, written_files
from torchtriage.recording.reader import read_recording
from torchtriage.shapes.policies import ShapePolicy


def run(folder: Path, source: str, *, limit: float = 60.0, stdin: Path | None = None) -> RunOutcome:
    command = [sys.executable, "-c", source]
    program = Program(command=command, folder=folder / "work", stdin=stdin, forced={"backend": "eager"})
    policy = ShapePolicy(name="p", forced=ForcedPolicy(dynamic="true"), environment={"X": "1"})
    return run_once(program, policy, limit, {"sizes": True})


def run_until_limit(folder: Path, source: str) -> RunOutcome:
    """The outcome of a program that calls `up()` and does not end; its limit is longer where starting it takes long."""
    mark = folder / "up"
    for limit in (2.0, 10.0, 60.0):
        outcome = run(folder, f"def up(): open({str(mark)!r}, 'w').close()\n{source}", limit=limit)
        if mark.exists():
            break
    return outcome


def test_the_child_gets_its_policy_and_an_empty_cache(tmp_path: Path) -> None:
    names = [
        environment.POLICY,
        "X",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        environment.TELEMETRY,
        environment.FOLDER,
    ]
    outcome = run(tmp_path, f"import os, json; print(json.dumps([os.environ[n] for n in {names!r}]))")
    policy, x, inductor, triton, telemetry, folder = json.loads(outcome.stdout.read_text())
    assert json.loads(policy) == {"name": "p", "backend": "eager", "dynamic": "true", "sizes": True}
    assert (x, telemetry, folder) == ("1", "0", str(outcome.recording))
    assert not Path(inductor).exists()
    assert not Path(triton).exists()


def test_every_run_has_its_own_cache_and_recording(tmp_path: Path) -> None:
    program = (
        "import os; os.makedirs(os.environ['TORCHINDUCTOR_CACHE_DIR']); "
        "print(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    )
    first, second = run(tmp_path, program), run(tmp_path, program)
    assert first.stdout.read_text() != second.stdout.read_text()
    assert first.recording != second.recording
    assert not Path(first.stdout.read_text().strip()).exists()


def test_a_cache_may_start_as_a_copy_of_a_shared_one(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "ab"
    shared.mkdir(parents=True)
    (shared / "check.so").write_text("checked")
    source = (
        "import os, pathlib; p = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'ab/check.so'); "
        "print(p.read_text()); p.unlink()"
    )
    program = Program(command=[sys.executable, "-c", source], folder=tmp_path / "work", cache=shared.parent)
    for _ in range(2):
        assert run_once(program, ShapePolicy(name="p"), 60.0).stdout.read_text() == "checked\n"


def test_the_generated_code_is_known_by_its_file_names(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "ab"
    shared.mkdir(parents=True)
    (shared / "check.cpp").touch()
    source = "import os, pathlib; p = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'ab'); " \
        "[(p / name).touch() for name in ('k.cpp', 'w.py', 'k.so', 'x.lock')]"
    program = Program(command=[sys.executable, "-c", source], folder=tmp_path / "work", cache=shared.parent)
    assert run_once(program, ShapePolicy(name="p"), 60.0).code == {"k.cpp", "w.py"}


def test_a_failed_processor_check_leaves_every_cache_empty(tmp_path: Path) -> None:
    assert checked_cache(tmp_path, str(tmp_path / "no-python")) is None


def test_the_exit_status_is_kept(tmp_path: Path) -> None:
    outcome = run(tmp_path, "import sys; print('no', file=sys.stderr); sys.exit(3)")
    assert (outcome.exit_status, outcome.was_stopped, outcome.last_lines()) == (3, False, "no")
    assert read_recording(outcome.recording).facts["exit_status"] == 3


def test_every_run_gets_the_same_input(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello\n")
    for _ in range(2):
        assert run(tmp_path, "print(input())", stdin=tmp_path / "in").stdout.read_text() == "hello\n"
    assert "EOFError" in run(tmp_path, "print(input())").last_lines()


def test_a_run_at_its_time_limit_is_interrupted(tmp_path: Path) -> None:
    outcome = run_until_limit(
        tmp_path, "import time\ntry:\n    up()\n    time.sleep(600)\nfinally:\n    print('tidy')")
    assert (outcome.was_stopped, outcome.exit_status, outcome.stdout.read_text()) == (True, 130, "tidy\n")


def test_a_run_can_be_interrupted_even_if_the_study_ignores_ctrl_c(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)       # as under `nohup torchtriage shapes ... &`
    try:
        assert run_until_limit(tmp_path, "import time; up(); time.sleep(600)").exit_status == 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_that_ignores_signals_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE_SECONDS", 0.2)
    program = (
        "import os, signal, subprocess, sys, time\n"
        "for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True)\n"
        "up(); time.sleep(600)\n"
    )
    outcome = run_until_limit(tmp_path, program)
    assert (outcome.was_stopped, outcome.exit_status) == (True, 137)
    assert not is_running(int(outcome.stdout.read_text()))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


class Stdin:
    """sys.stdin on a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.buffer = os.fdopen(descriptor, "rb")


def test_stdin_is_copied_from_a_file_and_from_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").write_bytes(b"from a file")
    monkeypatch.setattr(sys, "stdin", Stdin(os.open(tmp_path / "in", os.O_RDONLY)))
    assert kept_stdin(tmp_path / "copy") == (tmp_path / "copy", "")
    assert (tmp_path / "copy").read_bytes() == b"from a file"
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe")
    os.close(writing)
    monkeypatch.setattr(sys, "stdin", Stdin(reading))
    assert kept_stdin(tmp_path / "copy")[0] is not None
    assert (tmp_path / "copy").read_bytes() == b"from a pipe"


def test_an_idle_pipe_does_not_block_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "PATIENCE_SECONDS", 0.05)
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", Stdin(reading))
    path, note = kept_stdin(tmp_path / "copy")
    os.close(writing)
    assert path is None
    assert "stayed silent" in note


def test_a_missing_stdin_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(os.open(os.devnull, os.O_RDONLY)))
    assert kept_stdin(tmp_path / "copy") == (None, "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("no descriptor"))
    assert kept_stdin(tmp_path / "copy") == (None, "")


def test_the_files_that_a_run_writes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("kept.txt", "changed.txt"):
        Path(name).write_text("x")
    Path("out/deep").mkdir(parents=True)
    for skipped in (".git", "x.triage"):
        Path(skipped).mkdir()
    words = ["python", "train.py", "--log", "out/log.txt", "\0"]
    before = file_times(words)
    Path("changed.txt").write_text("longer")
    Path("new.txt").write_text("x")
    for name in ("out/log.txt", "out/deep/last.pt", ".git/index", "x.triage/run.sqlite"):
        Path(name).write_text("x")
    assert written_files(before, file_times(words)) == ["changed.txt", "new.txt", "out/deep/last.pt", "out/log.txt"]
