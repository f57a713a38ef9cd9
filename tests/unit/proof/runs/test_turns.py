"""Processes that take turns: one is active at a time, its clock is paused with it, and none is left behind."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.proof.runs.process import Program, run_in_turns
from torchtriage.proof.runs.turns import InTurns, Pauses, new_pause_file, take_turns
from torchtriage.shapes.policies import ShapePolicy

# Works for 0.4 s of its own clock; then prints the time by both clocks, and the intervals of its work.
WORKER = """
import json, os, time
from torchtriage.capture.machine import ActiveClock
clock = ActiveClock(json.loads(os.environ["TORCHTRIAGE_POLICY"])["paused"])
began, own, at_work = time.perf_counter(), clock.now(), [time.time()]
at_work.append(at_work[0])
while clock.now() - own < 0.4:
    now = time.time()
    if now - at_work[-1] > 0.02:
        at_work += [now, now]
    at_work[-1] = now
print(json.dumps([time.perf_counter() - began, clock.now() - own, at_work]))
"""


def outcomes(folder: Path, *sources: str, limit: float = 60.0, together: float = 60.0) -> list[tuple[bool, int, str]]:
    """(stopped at its limit, status, output) of each program."""
    policies = [ShapePolicy(name="p", environment={"SOURCE": source}) for source in sources]
    program = Program(command=[sys.executable, "-c", "import os; exec(os.environ['SOURCE'])"], folder=folder)
    results = run_in_turns(program, policies, limit, together)
    return [(o.was_stopped, o.exit_status, o.stdout.read_text()) for o in results]


def test_one_process_works_while_the_others_are_paused(tmp_path: Path) -> None:
    found = [json.loads(text) for _, _, text in outcomes(tmp_path, WORKER, WORKER)]
    for passed, own, _ in found:
        assert passed > own  # the pauses are not its own time
    spans = sorted(
        (begin, end) for _, _, at_work in found for begin, end in zip(at_work[::2], at_work[1::2], strict=True)
    )
    assert len(spans) > 4
    overlap = sum(max(0.0, end - begin) for (_, end), (begin, _) in itertools.pairwise(spans))
    assert overlap < 0.1 * sum(own for _, own, _ in found)


def test_the_exit_status_of_each_run_is_kept(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "print('a')", "raise SystemExit(3)", "while True: pass", limit=6.0)
    assert [(stopped, status) for stopped, status, _ in found] == [(False, 0), (False, 3), (True, 130)]
    assert found[0][2] == "a\n"


def test_all_runs_end_at_their_common_limit(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "raise SystemExit(3)", "while True: pass", "while True: pass", together=6.0)
    assert [(stopped, status) for stopped, status, _ in found] == [(False, 3), (True, 130), (True, 130)]


def test_child_processes_are_paused_too(tmp_path: Path) -> None:
    child = "import time\nwhile True: print(time.time(), flush=True); time.sleep(0.005)"
    source = (
        f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "time.sleep(3); p.kill()"
    )
    text = outcomes(tmp_path, source, "import time\nbegan = time.time()\nwhile time.time() - began < 2: pass")[0][2]
    moments = [float(line) for line in text.split()]
    assert max(b - a for a, b in itertools.pairwise(moments)) > 0.03      # a turn of the other process is between them


def test_no_process_is_left_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(runs: list[InTurns], seconds: float) -> None:
        pids.extend(run.child.pid for run in runs)
        raise KeyboardInterrupt

    pids: list[int] = []
    monkeypatch.setattr("torchtriage.proof.runs.process.take_turns", interrupted)
    with pytest.raises(KeyboardInterrupt):
        outcomes(tmp_path, "import time; time.sleep(60)", "import time; time.sleep(60)")
    assert len(pids) == 2
    assert not any(map(is_there, pids))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent was killed")
@pytest.mark.parametrize(("runs", "num_runs"), [
    ("run_in_turns(program, [ShapePolicy(name='a'), ShapePolicy(name='b')], 60.0)", 2),
    ("run_once(program, ShapePolicy(name='a'), 60.0)", 1),
])
def test_no_process_is_left_after_the_study_is_killed(tmp_path: Path, runs: str, num_runs: int) -> None:
    ours = (
        "import sys; from pathlib import Path; from torchtriage.shapes.policies import ShapePolicy\n"
        "from torchtriage.proof.runs.process import Program, run_in_turns, run_once\n"
        "source = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'\n"
        "program = Program(command=[sys.executable, '-c', source], folder=Path(sys.argv[1]))\n"
        f"{runs}\n"
    )
    with subprocess.Popen([sys.executable, "-c", ours, str(tmp_path)]) as killed:
        until = time.monotonic() + 120
        pids: list[int] = []
        while len(pids) < num_runs and time.monotonic() < until:
            time.sleep(0.05)
            pids = [int(text) for path in tmp_path.glob("run*/stdout") if (text := path.read_text()).endswith("\n")]
        killed.kill()
    assert len(pids) == num_runs
    while any(map(is_there, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_there, pids))


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_the_pauses_agree_with_the_clock(tmp_path: Path) -> None:
    path = new_pause_file(tmp_path / "paused")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"], start_new_session=True) as child:
        run = InTurns(child, path, 60.0)
        take_turns([run])
    began = time.time() - 3600
    paused = 3600 - (run.pauses.active(began + 3600) - run.pauses.active(began))
    assert 0 < paused < 3600
    assert run.seconds > 0
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, signal.SIGCONT)


@given(st.lists(st.floats(0.001, 5), max_size=20), st.floats(0, 60), st.floats(0, 60))
def test_active_time_is_time_without_the_pauses(lengths: list[float], one: float, other: float) -> None:
    """Work and pauses take turns; each length is one of them."""
    edges = [0.0]
    for length in lengths:
        edges.append(edges[-1] + length)
    pauses = list(zip(edges[1::2], edges[2::2], strict=False))
    begin, end = sorted((one, other))
    expected = (end - begin) - sum(max(0.0, min(end, b) - max(begin, a)) for a, b in pauses)
    found = Pauses(pauses)
    assert found.active(end) - found.active(begin) == pytest.approx(expected, abs=1e-9)
