"""`torchtriage verify` on real programs: a right change is verified, a wrong one is refuted."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchtriage
from torchtriage.proof import experiment

PROGRAM = '''\
import os, sys, torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    print("mean", y.mean().item())
    return (y - x.sum(-1, keepdim=True)).pow(2).mean()


for number in range(5):
    loss = loss_of(torch.randn(32, 8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
os.mkdir("out")
open("out/loss.txt", "w").write(str(loss.item()))
print("loss", loss.item(), *sys.argv[1:])
'''
PRINT = '    print("mean", y.mean().item())\n'
CURED = PROGRAM.replace(PRINT, "")


def verify(folder: Path, *words: str, timeout: float = 1500.0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torchtriage", "verify", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "before.py").write_text(PROGRAM)
    (tmp_path / "after.py").write_text(CURED)
    return tmp_path


def test_a_right_cure_is_verified_and_no_file_is_written(folder: Path) -> None:
    done = verify(folder, "before.py", "after.py", "--format", "json", "--", "--epochs", "1")
    proof = json.loads(done.stdout)
    assert (done.returncode, proof["verdict"], proof["reasons"]) == (0, "verified", []), done.stderr
    assert {mark["code"] for mark in proof["findings"]["fixed"]} == {"TT101", "TT104"}
    assert proof["findings"]["new"] == []
    assert (proof["numbers"]["state"], proof["numbers"]["num_steps"]) == ("equal", 5)
    assert proof["before"]["command"][-2:] == ["--epochs", "1"]
    assert sorted(path.name for path in folder.iterdir()) == ["after.py", "before.py"]


def test_a_rule_to_fix_that_does_not_exist_is_refused_before_anything_runs(folder: Path) -> None:
    done = verify(folder, "--fixes", "TT101,TT999", "before.py", "after.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "torchtriage: --fixes: no rule TT999; list the rules with: torchtriage explain\n"


@pytest.mark.thorough
@pytest.mark.parametrize(("old", "new", "kind"), [
    ("nn.Dropout(0.1), ", "", "numbers-differ"),
    (".pow(2).mean()", ".pow(2).sum() / 33", "numbers-differ"),
    ("range(5)", "range(4)", "fewer-steps"),
    ('@torch.compile(backend="eager")\n', "", "less-compiled"),
    ("    loss.backward()\n", "    assert number < 2\n    loss.backward()\n", "after-fails"),
    ("range(5):\n", "range(5):\n    torch.manual_seed(0)\n", "draws-repeated"),
], ids=["lost dropout", "reduction", "steps", "not compiled", "fails", "seeded"])
def test_a_wrong_cure_is_refuted(folder: Path, old: str, new: str, kind: str) -> None:
    source = CURED.replace(old, new)
    assert source != CURED
    (folder / "after.py").write_text(source)
    done = verify(folder, "before.py", "after.py", "--format", "json")
    proof = json.loads(done.stdout)
    assert (done.returncode, proof["verdict"]) == (1, "refuted"), done.stderr
    assert kind in {reason["kind"] for reason in proof["reasons"]}


@pytest.mark.thorough
def test_a_cure_that_keeps_the_numbers_but_repeats_the_work_is_not_verified(tmp_path: Path) -> None:
    steps = PROGRAM.replace("range(5)", "range(44)").replace("nn.Dropout(0.1), ", "")
    cured = steps.replace(PRINT, "")
    (tmp_path / "before.py").write_text(steps)
    (tmp_path / "after.py").write_text(cured.replace("y = net(x)", "y = [net(x) for _ in range(60)][-1]"))
    done = verify(tmp_path, "before.py", "after.py", "--format", "json")
    proof = json.loads(done.stdout)
    assert (done.returncode, proof["verdict"], proof["numbers"]["state"]) == (1, "refuted", "equal"), done.stderr
    assert proof["time"]["num_rounds"] == 2
    assert {reason["kind"] for reason in proof["reasons"]} <= {"slower", "more-work"}


@pytest.mark.thorough
@pytest.mark.parametrize(("old", "new", "state"), [
    (".pow(2).mean()", ".pow(2).sum() / 32", "rounding"),
    ("for number in", "torch.rand(3)\nfor number in", "same-draws"),
])
def test_rounding_and_moved_draws_are_verified(folder: Path, old: str, new: str, state: str) -> None:
    changed = CURED.replace("y = net(x)", "y = net(x) * 1.0 + 0.0").replace(old, new)
    (folder / "after.py").write_text(changed)
    done = verify(folder, "before.py", "after.py", "--format", "json")
    proof = json.loads(done.stdout)
    assert (done.returncode, proof["verdict"]) == (0, "verified"), (proof["reasons"], done.stderr)
    assert proof["numbers"]["state"] in (state, "equal")


@pytest.mark.thorough
def test_revisions_are_compared_in_their_own_trees(folder: Path) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    (folder / "train.py").write_text(PROGRAM)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "before")
    (folder / "train.py").write_text(CURED)
    done = verify(folder, "--rev", "HEAD", "--rev", ".", "train.py", "--steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("VERIFIED")
    assert "ended after 3 optimizer steps" in done.stdout
    assert git("worktree", "list").count("\n") == 1
    assert git("status", "--short") == " M train.py\n"
    missing = verify(folder, "--rev", "nowhere", "--rev", ".", "train.py")
    assert (missing.returncode, "nowhere is not a revision" in missing.stderr) == (2, True)


@pytest.mark.thorough
def test_a_program_without_steps_is_judged_by_what_it_prints(tmp_path: Path) -> None:
    program = (
        "import time, torch\n\n@torch.compile(backend='eager')\ndef f(x):\n    n = x.sum().item()\n"
        "    return (x * 2).sum() + n\n\ntorch.manual_seed(3)\nfor k in range(3):\n"
        "    print('result', f(torch.randn(4)).item(), 'after', time.perf_counter(), 's')\n")
    (tmp_path / "before.py").write_text(program)
    (tmp_path / "after.py").write_text(program.replace(".sum().item()", ".sum()"))
    (tmp_path / "wrong.py").write_text(program.replace(".sum().item()", ".mean()"))
    right, wrong = verify(tmp_path, "before.py", "after.py"), verify(tmp_path, "before.py", "wrong.py")
    assert right.returncode == 0, right.stdout + right.stderr
    assert "no optimizer step: the numbers that the program prints" in " ".join(right.stdout.split())
    assert "left out" in right.stdout
    assert wrong.returncode == 1, wrong.stdout


@pytest.mark.thorough
def test_tensor_work_of_a_message_that_compiled_code_skips_is_not_missing(tmp_path: Path) -> None:
    sick = PROGRAM.replace("y.mean().item()", "x.abs().max(), x.mean(), x.std(), y.abs().max(), y.std(), y.var()")
    message = sick[sick.index("    print("):].splitlines()[0]
    cured = sick.replace(message, f"    if not torch.compiler.is_compiling():\n    {message}")
    (tmp_path / "before.py").write_text(sick)
    (tmp_path / "after.py").write_text(cured)
    done = verify(tmp_path, "before.py", "after.py", "--format", "json")
    proof = json.loads(done.stdout)
    assert proof["after"]["graph_ops"] < 0.8 * proof["before"]["graph_ops"]
    assert (done.returncode, proof["verdict"]) == (0, "verified"), proof["reasons"]


@pytest.mark.thorough
def test_the_end_of_the_budget_is_undecided_whatever_was_seen_until_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = "import time\n" + PROGRAM.replace("range(5):\n", "range(10 ** 9):\n    time.sleep(0.1)\n")
    (folder / "before.py").write_text(endless)
    (folder / "after.py").write_text(endless.replace(PRINT, ""))
    monkeypatch.setattr(experiment, "MIN_SECONDS", 12.0)
    monkeypatch.chdir(folder)
    said: list[str] = []
    proof = torchtriage.verify("before.py", "after.py", budget=24, say=said.append)
    assert proof.verdict == "undecided"
    assert [(reason.kind, reason.subject) for reason in proof.reasons] == [
        ("budget-ended", "BEFORE"), ("budget-ended", "AFTER")]
    assert proof.num_runs == 2
    assert "stopped at its time limit" in said[-1]


@pytest.mark.thorough
def test_every_run_reads_the_same_stdin(folder: Path) -> None:
    reading = PROGRAM.replace("torch.manual_seed(0)\n", "torch.manual_seed(len(sys.stdin.read()))\n", 1)
    (folder / "before.py").write_text(reading)
    (folder / "after.py").write_text(reading.replace(PRINT, ""))
    command = [sys.executable, "-m", "torchtriage", "verify", "before.py", "after.py", "--format", "json"]
    done = subprocess.run(command, cwd=folder, input="some words\n", capture_output=True, text=True, timeout=600)
    proof = json.loads(done.stdout)
    assert (proof["verdict"], proof["numbers"]["state"]) == ("verified", "equal"), (proof["reasons"], done.stderr)


@pytest.mark.thorough
def test_two_interpreters_run_one_script(folder: Path) -> None:
    (folder / "before.py").write_text(CURED)
    words = ["--python", sys.executable, "--python", sys.executable, "before.py", "--format", "json"]
    done = verify(folder, *words)
    proof = json.loads(done.stdout)
    assert (done.returncode, proof["verdict"], proof["numbers"]["state"]) == (0, "verified", "equal"), done.stderr
    assert [proof[side]["label"] for side in ("before", "after")] == [sys.executable] * 2
    wrong = verify(folder, "--python", sys.executable, "--python", "/bin/false", "before.py")
    assert (wrong.returncode, "/bin/false cannot be observed" in wrong.stderr) == (2, True), wrong.stderr


RANKS = PROGRAM.replace("import os, sys, torch\n", "import torch, torch.distributed as dist\n").replace(
    "torch.manual_seed(0)\n", 'dist.init_process_group("gloo")\ntorch.manual_seed(0)\n', 1).replace(
    "for number in", "torch.manual_seed(dist.get_rank())\nfor number in").partition("os.mkdir(")[0] + (
    'print("loss", loss.item()) if dist.get_rank() == 0 else None\ndist.destroy_process_group()\n')


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "verdict", "kinds"), [
    ("dist.get_rank()", "verified", []), ("0", "refuted", ["draws-repeated"]),
], ids=["right", "all ranks seeded alike"])
def test_several_ranks_are_compared(tmp_path: Path, seed: str, verdict: str, kinds: list[str]) -> None:
    (tmp_path / "before.py").write_text(RANKS)
    (tmp_path / "after.py").write_text(RANKS.replace(PRINT, "").replace("dist.get_rank())\nfor", f"{seed})\nfor"))
    launch = f"{sys.executable} -m torch.distributed.run --standalone --nproc_per_node 2"
    done = verify(
        tmp_path, "--before", f"{launch} before.py", "--after", f"{launch} after.py", "--format", "json", timeout=1500)
    proof = json.loads(done.stdout)
    assert (proof["verdict"], [reason["kind"] for reason in proof["reasons"]]) == (verdict, kinds), done.stderr
    assert "BEFORE trains in 2 processes; all of them are compared" in proof["notes"]
    assert proof["numbers"]["num_steps"] == 10


def test_ctrl_c_leaves_no_process_and_no_folder(folder: Path) -> None:
    (folder / "before.py").write_text("import time, torch\ntime.sleep(60)\n")
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "torchtriage", "verify", "before.py", "after.py"]
    with subprocess.Popen(command, cwd=folder, env={**os.environ, "TMPDIR": str(temporary)}) as child:
        until = time.monotonic() + 600
        while not list(temporary.glob("torchtriage-verify-*/runs2/run1/stdout")) and time.monotonic() < until:
            time.sleep(0.05)
        child.send_signal(2)
        assert child.wait(600) == 130
    assert list(temporary.glob("torchtriage-verify-*")) == []
