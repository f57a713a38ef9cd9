"""The program ends as it would unobserved: its status, signals and streams are the same."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchtriage.launch import environment, supervise
from torchtriage.launch.supervise import observed_environment, python_command, run_to_end


def run(program: str, **kwargs) -> int:
    return run_to_end([sys.executable, "-c", program], os.environ, **kwargs)


def supervised(program: str, **kwargs) -> subprocess.Popen:
    """A process that does nothing but supervise this program."""
    source = (
        "import os, sys\nfrom torchtriage.launch.supervise import run_to_end\n"
        f"sys.exit(run_to_end([sys.executable, '-c', {program!r}], os.environ))"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", source], text=True, **pipes, **kwargs)


@pytest.mark.parametrize("status", [0, 1, 3, 255])
def test_the_exit_status_is_the_programs(status: int) -> None:
    assert run(f"import os; os._exit({status})") == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_program_ended_by_a_signal_has_the_status_of_a_shell(number: signal.Signals) -> None:
    assert run(f"import os; os.kill(os.getpid(), {int(number)})") == 128 + number


def test_stdin_stdout_and_stderr_are_the_programs() -> None:
    child = supervised("import sys; print(sys.stdin.read().upper()); print('err', file=sys.stderr)")
    assert child.communicate("hello", timeout=600) == ("HELLO\n", "err\n")
    assert child.returncode == 0


def test_a_tick_comes_while_the_program_runs_and_its_end_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "TICK_SECONDS", 0.02)
    ticked, ticks = tmp_path / "ticked", itertools.count()

    def tick() -> None:
        if next(ticks) == 2:
            ticked.touch()

    program = f"import os, time\nwhile not os.path.exists({str(ticked)!r}): time.sleep(0.01)\nraise SystemExit(4)"
    assert run(program, tick=tick) == 4
    assert ticked.exists()


def test_the_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    run("pass")
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_program_handles_ctrl_c_and_its_status_is_returned() -> None:
    program = (
        "import time\ntry:\n    print('up', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('saved', flush=True)\n    raise SystemExit(5)"
    )
    child = supervised(program, start_new_session=True)
    assert child.stdout.readline() == "up\n"
    os.killpg(child.pid, signal.SIGINT)     # what a terminal does
    out, err = child.communicate(timeout=600)
    assert (out, err, child.returncode) == ("saved\n", "", 5)


def test_sigterm_is_passed_on() -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(6)))\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    child = supervised(program)
    assert child.stdout.readline() == "up\n"
    child.terminate()
    out, _ = child.communicate(timeout=600)
    assert (out, child.returncode) == ("saved\n", 6)


def test_a_command_that_does_not_exist_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        run_to_end([str(tmp_path / "nothing")], os.environ)


def test_python_is_called_as_the_user_would_call_it() -> None:
    assert python_command(["train.py", "--lr", "1"], module=False) == [sys.executable, "train.py", "--lr", "1"]
    assert python_command(["pkg.train", "-m"], module=True) == [sys.executable, "-m", "pkg.train", "-m"]


def test_the_environment_only_adds_the_recording() -> None:
    base = {"PATH": "/bin", "PYTHONPATH": "/x"}
    env = observed_environment(base, "/out.triage", "run1", measure=False)
    assert {k: v for k, v in env.items() if not k.startswith("TORCHTRIAGE")} == base
    assert (env[environment.FOLDER], env[environment.RUN_ID]) == ("/out.triage", "run1")
    assert environment.MEASURE not in env
    assert observed_environment(base, "/out.triage", "run1", measure=True)[environment.MEASURE] == "1"
