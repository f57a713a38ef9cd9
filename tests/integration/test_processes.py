"""Every process of a run joins one folder, with a separate file if it has events."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.programs import Outcome, command, environment, observe, write
from torchtriage.launch.environment import claim
from torchtriage.recording.events import Recompile
from torchtriage.recording.reader import LAUNCHER_FILE, read_recording
from torchtriage.recording.recorder import Recorder
from torchtriage.recording.recording import Process

FAMILY = """
import multiprocessing, os, subprocess, sys, threading
import torch

def compiled(name):
    '''A function of that name that breaks once and is compiled twice.'''
    space = {"torch": torch}
    exec(compile(f"def {name}(x):\\n    print('{name}')\\n    return x + 1\\n", __file__, "exec"), space)
    return torch.compile(space[name], backend="eager", dynamic=False)

def work(name):
    for size in (2, 3):
        compiled(name)(torch.ones(size))

class Compiling(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        if index % 2 == 0:
            work("in_worker")
        return index

class Idle(Compiling):
    def __getitem__(self, index):
        return index

if __name__ == "__main__" and len(sys.argv) > 1:
    work(sys.argv[1])
elif __name__ == "__main__":
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])
    for _ in range(3):
        optimizer.step()
    work("before_children")
    subprocess.run([sys.executable, __file__, "in_subprocess"], cwd="/", check=True)
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    for method in ("spawn", "fork"):
        child = multiprocessing.get_context(method).Process(target=work, args=(f"in_{method}",))
        child.start()
        work(f"beside_{method}")
        child.join()
        assert child.exitcode == 0
    assert len(list(torch.utils.data.DataLoader(Compiling(), num_workers=2, batch_size=1))) == 4
    assert len(list(torch.utils.data.DataLoader(Idle(), num_workers=2, batch_size=1))) == 4
    threads = [threading.Thread(target=work, args=(f"in_thread_{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work("after_children")
"""


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    seen = observe(tmp_path_factory.mktemp("family"), FAMILY)
    assert seen.status == 0, seen.stderr
    return seen


def processes(folder: Path) -> list[Process]:
    return list(read_recording(folder).processes)


def names(process: Process) -> Counter[str]:
    """How often each function of the program broke in this process."""
    from torchtriage.recording.events import GraphBreak

    return Counter(e.function for e in process.of(GraphBreak))


def test_exactly_the_processes_with_events_have_a_file(family: Outcome) -> None:
    found = sorted(tuple(sorted(names(p))) for p in processes(family.folder))
    in_main = (
        "after_children",
        "before_children",
        "beside_fork",
        "beside_spawn",
        *(f"in_thread_{i}" for i in range(4)),
    )
    assert found == [in_main, ("in_fork",), ("in_spawn",), ("in_subprocess",), ("in_worker",)]


def test_no_event_is_lost_or_duplicated(family: Outcome) -> None:
    counts = sum((names(p) for p in processes(family.folder)), Counter[str]())
    assert counts.pop("in_worker") == 4
    assert set(counts.values()) == {2}, counts
    assert family.report["totals"]["graph_breaks"] == 2 * 11 + 4


def test_each_file_is_complete_and_has_one_process_that_ended(family: Outcome) -> None:
    pids = []
    for path in family.folder.glob("*.sqlite"):
        with sqlite3.connect(path) as db:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
            pids.append(json.loads(db.execute("select value from facts where key = 'pid'").fetchone()[0])
                        if path.name != LAUNCHER_FILE else 0)
            assert {pid for (pid,) in db.execute("select distinct pid from events where kind != 'tap'")} <= {pids[-1]}
    assert len(pids) == len(set(pids))
    assert [p for p in processes(family.folder) if not p.facts.get("end")] == []
    assert "TT902" not in family.codes


def test_a_child_process_counts_only_its_own_steps(family: Outcome) -> None:
    steps = {next(iter(sorted(names(p)))): p.num_steps for p in processes(family.folder)}
    assert steps.pop("after_children") == 3
    assert set(steps.values()) == {None}


# torchrun

@pytest.mark.thorough
def test_ranks_join_one_folder_and_are_distinguished(tmp_path: Path) -> None:
    source = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        @torch.compile(backend="eager", dynamic=False)
        def on_both(x):
            return x + 1
        @torch.compile(backend="eager")
        def on_one(x):
            print("hello")
            return x + 1
        for size in range(2, 4 + rank):
            on_both(torch.ones(size))
        if rank == 1:
            on_one(torch.ones(2))
        dist.barrier()
        dist.destroy_process_group()
        """
    write(tmp_path, source)
    done = command(tmp_path, "run", "-o", "out", "--", sys.executable, "-m", "torch.distributed.run", "--standalone",
                   "--nproc_per_node", "2", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("findings,") == 1     # one report, not one per rank
    folder = tmp_path / "out.triage"
    report = Outcome(0, "", "", folder).report
    assert report["run"]["ranks"] == [0, 1]
    assert sorted(p.name.split("-")[0] for p in folder.glob("rank*.sqlite")) == ["rank0", "rank1"]
    assert [(e["rank"], e["compile_id"]) for e in report["events"]["recompiles"]] == [
        (0, "0/1"),
        (1, "0/1"),
        (1, "0/2"),
    ]
    assert [(e["rank"], e["function"]) for e in report["events"]["graph_breaks"]] == [(1, "on_one")]
    by_code = {f["code"]: f for f in report["findings"]}
    assert by_code["TT101"]["ranks"] == [1]
    assert sorted({rank for f in report["findings"] if f["code"].startswith("TT2") for rank in f["ranks"]}) == [0, 1]


# TORCHTRIAGE=NAME.triage CMD

def run_with_variable(folder: Path, *args: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = environment({"TORCHTRIAGE": "out.triage", **variables})
    return subprocess.run(
        [sys.executable, "train.py", *args], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )


@pytest.mark.thorough
def test_the_variable_records_any_command_and_keeps_an_earlier_run(tmp_path: Path) -> None:
    source = """
        import os, subprocess, sys, torch
        @torch.compile(backend="eager")
        def f(x):
            print("hello")
            return x + 1
        f(torch.ones(2))
        if len(sys.argv) > 1:
            subprocess.run([sys.executable, os.path.abspath(__file__)], cwd="/", check=True)
        """
    write(tmp_path, source)
    first = run_with_variable(tmp_path, "with a child")
    assert (first.returncode, first.stdout, first.stderr) == (0, "hello\nhello\n", "")
    assert len(processes(tmp_path / "out.triage")) == 2
    second = run_with_variable(tmp_path)
    assert second.returncode == 0
    assert f"holds an earlier run; recording into {tmp_path / 'out-2.triage'}" in second.stderr
    assert len(processes(tmp_path / "out.triage")) == 2
    report = Outcome(0, "", "", tmp_path / "out-2.triage").report
    assert [f["code"] for f in report["findings"]] == ["TT101"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out-2.triage", "out.triage", "train.py"]


def test_with_the_variable_the_program_runs_even_if_nothing_can_be_written(tmp_path: Path) -> None:
    write(tmp_path, "import os, sys; print('ran', os.environ.get('TORCHTRIAGE')); sys.exit(6)")
    done = run_with_variable(tmp_path, TORCHTRIAGE="/proc/x.triage")
    assert (done.returncode, done.stdout) == (6, "ran None\n")
    assert "cannot record into /proc/x.triage" in done.stderr


def test_a_rank_waits_for_the_id_that_another_is_writing(tmp_path: Path) -> None:
    """The ranks of a scheduler agree on an id through a file, which the rank that creates it does not write at once."""
    path = tmp_path / "run_id"
    path.touch()

    def write_id() -> None:
        time.sleep(0.2)
        path.write_text("slurm_job_id-7-0")

    writer = threading.Thread(target=write_id)
    writer.start()
    assert claim(str(tmp_path), "slurm_job_id-7-0")
    writer.join()
    assert not claim(str(tmp_path), "slurm_job_id-8-0")


def test_a_reused_process_id_gets_a_separate_file(tmp_path: Path) -> None:
    """Worker processes start and end for days, and compile ids are meaningful only within one process."""
    facts: dict[str, Any] = {"host": "here", "rank": None}
    for _ in range(2):
        recorder = Recorder(tmp_path, lambda: facts)
        recorder.add(Recompile(compile_id="0/1", function="f"))
        recorder.close()
    assert [len(p.events) for p in processes(tmp_path)] == [1, 1]


@pytest.mark.thorough
def test_a_program_that_calls_exec_is_recorded_before_and_after(tmp_path: Path) -> None:
    source = """
        import os, sys, torch
        @torch.compile(backend="eager")
        def first_life(x):
            print("first")
            return x + 1
        @torch.compile(backend="eager")
        def second_life(x):
            print("second")
            return x + 1
        if len(sys.argv) == 1:
            first_life(torch.ones(2))
            os.execvp(sys.executable, [sys.executable, __file__, "again"])
        second_life(torch.ones(2))
        """
    seen = observe(tmp_path, source)
    assert seen.status == 0
    assert [tuple(names(p)) for p in processes(seen.folder)] == [("first_life",), ("second_life",)]
    assert "TT902" not in seen.codes
