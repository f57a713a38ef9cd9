"""`torchtriage shapes` on real programs, as a user would run it.

The eager backend compiles the same graphs in a hundredth of the time.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.programs import TORCHTRIAGE, Done, command, environment, write

# One run of each policy is enough to see that everything is there; which is quickest is for the unit tests.
QUICK = ("--backend", "eager", "--rounds", "1", "--budget", "20m")

GROWING = """
    import json, os, sys
    import torch

    word = input()

    def attend(q, kv):
        return torch.softmax(q @ kv.T, -1) @ kv

    step = torch.compile(attend, dynamic=False)
    q = torch.randn(1, 8)
    for n in range(4, 17):
        step(q, torch.randn(n, 8))
    if json.loads(os.environ.get("TORCHTRIAGE_POLICY", "{}")).get("dynamic") == "true":
        raise RuntimeError("not with me")
    with open("log.txt", "w") as file:
        file.write(os.environ.get("TORCHTRIAGE_POLICY", ""))
    print(word)
"""


def study_in(done: Done) -> dict[str, Any]:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["shapes"]


def row(study: dict[str, Any], name: str) -> dict[str, Any]:
    return next(policy for policy in study["policies"] if policy["name"] == name)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A growing length, compiled with dynamic=False; it reads stdin, writes a file, and fails under one policy."""
    folder = tmp_path_factory.mktemp("grown")
    write(folder, GROWING, "decode.py")
    done = command(folder, "shapes", *QUICK, "-o", "out", "--format", "json", "decode.py", stdin="hello\n")
    assert done.returncode == 0, done.stderr
    return folder, done


def test_every_policy_is_run_and_its_compiles_are_counted(grown: tuple[Path, Done]) -> None:
    study = study_in(grown[1])
    assert (study["unit"], study["num_units"], study["command"]) == ("call", 13, ["decode.py"])
    compiles = {p["name"]: p["num_compiles"] for p in study["policies"] if not p["failed"]}
    assert compiles == {"as written": 8, "dynamic=None": 2, "marked": 1, "recompile_limit=64": 13}
    assert row(study, "as written")["num_eager_calls"] == 4     # the call that hit the limit is not among them
    assert row(study, "dynamic=None")["overridden"] == ["decode.py:9 attend: dynamic=False -> None"]
    assert row(study, "dynamic=None")["setting"] == ["decode.py:9  torch.compile(attend)"]


def test_a_failing_policy_is_reported_and_the_others_continue(grown: tuple[Path, Done]) -> None:
    assert row(study_in(grown[1]), "dynamic=True")["failed"] == "ended with status 1: RuntimeError: not with me"


def test_varying_sizes_are_marked_although_the_first_sizes_run_fails(grown: tuple[Path, Done]) -> None:
    study = study_in(grown[1])
    sizes = [(s["source"], s["dim"], s["num_values"], s["num_calls"], s["is_marked"]) for s in study["sizes"]]
    assert sizes == [("L['kv']", 0, 13, 13, True)]
    entry = r"L\['kv'\]$:0" if row(study, "marked")["notes"] == [WHOLE_PROCESS] else r"L\['kv'\]$"
    assert row(study, "marked")["setting"] == [
        "export TORCH_COMPILE_DYNAMIC_SOURCES='" + entry.replace("'", "'\\''") + "'"
    ]


WHOLE_PROCESS = "TORCH_COMPILE_DYNAMIC_SOURCES applies to every compiled function of the process"


def test_one_round_recommends_nothing_and_gives_the_budget_it_needs(grown: tuple[Path, Done]) -> None:
    advice = study_in(grown[1])["advice"]
    assert advice["policy"] == ""
    assert "1 more round" in advice["needs"]


def test_the_files_of_the_unmodified_program_remain(grown: tuple[Path, Done]) -> None:
    folder, done = grown
    assert json.loads((folder / "log.txt").read_text())["name"] == "as written"
    assert any(note.startswith("each run overwrites log.txt") for note in study_in(done)["notes"])
    assert any(note.endswith("it writes files") for note in study_in(done)["notes"])       # so they did not take turns
    assert sorted(path.name for path in folder.iterdir()) == ["decode.py", "log.txt", "out.triage"]


def test_report_shows_the_study_in_the_recording(grown: tuple[Path, Done]) -> None:
    folder, done = grown
    shown = command(folder, "report", "out.triage")
    assert "recompile_limit=64" in shown.stdout
    assert json.loads(command(folder, "report", "out.triage", "--format", "json").stdout)["shapes"] == study_in(done)


# The cost of a compile is simulated, so that the best policy of each function is the same on every machine: a compile
# with an unknown size costs more.
TWO_FUNCTIONS = """
    import time
    import torch
    from torch._dynamo.comptime import comptime

    def work(context):
        is_unknown = isinstance(context.get_local("x").as_fake().shape[0], torch.SymInt)
        until = time.process_time() + (0.6 if is_unknown else 0.2)
        while time.process_time() < until:
            pass

    def fixed(x):
        comptime(work)
        return x + 1

    def varied(x):
        comptime(work)
        return x * 2

    first = torch.compile(fixed, dynamic=True)
    second = torch.compile(varied, dynamic=True)
    for n in range(3, 11):
        first(torch.ones(3))
        second(torch.ones(n))
    print("done")
"""


@pytest.mark.thorough
def test_policies_take_turns_and_each_function_gets_its_own(tmp_path: Path) -> None:
    write(tmp_path, TWO_FUNCTIONS)
    done = command(tmp_path, "shapes", *QUICK, "--rounds", "2", "-o", "out", "--format", "json", "train.py")
    study = study_in(done)
    assert "4 policies in turns" in done.stderr
    compiles = {p["name"]: p["num_compiles"] for p in study["policies"]}
    assert compiles == {"as written": 2, "dynamic=False": 9, "dynamic=None": 3, "marked": 2, "mixed": 2}
    of_its_own, = row(study, "mixed")["setting"]
    assert of_its_own in ("train.py:19  torch.compile(fixed, dynamic=False)", "train.py:19  torch.compile(fixed)")
    for policy in study["policies"]:
        # The clocks are paused with the process: compiling is part of the calls,
        # whatever the other runs took in between.
        assert 0 < policy["compile_seconds"]["middle"] < policy["total_seconds"]["middle"]
    assert not any("one after the other" in note for note in study["notes"])
    kept = command(tmp_path, "report", "out.triage", "--format", "json")
    assert "paused" not in kept.stdout


@pytest.mark.thorough
def test_fixed_shapes_need_no_measurement(tmp_path: Path) -> None:
    write(tmp_path, """
        import torch
        f = torch.compile(lambda x: x + 1)
        for _ in range(6):
            f(torch.ones(3))
    """)
    with (tmp_path / "ours.log").open("w") as log:      # our own progress is not a file that the program writes
        words = [*TORCHTRIAGE, "shapes", *QUICK, "--format", "json", "train.py"]
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    study = study_in(done)
    assert study["advice"]["policy"] == "as written"
    assert not any("ours.log" in note for note in study["notes"])
    assert [p["name"] for p in study["policies"]] == ["as written"]
    assert study["branches"][0]["answer"].startswith("yes")


@pytest.mark.thorough
@pytest.mark.parametrize(("sizes", "num_calls", "values"), [
    ("4x2", 6, []), ("4,8x2", 9, [{"8": 6, "4": 3}]),
])
def test_one_function_is_called_with_the_given_sizes(
    sizes: str, num_calls: int, values: list[Any], tmp_path: Path
) -> None:
    write(tmp_path, """
        import torch

        def scale(x, by):
            return x * by

        def scale_inputs(size):
            return {"x": torch.ones(size, 3), "by": 2.0}
    """, "m.py")
    done = command(tmp_path, "shapes", "m.py::scale", "--sizes", sizes, "--repeat", "3", "--format", "json", *QUICK)
    study = study_in(done)
    assert (study["unit"], study["num_units"]) == ("call", num_calls)
    assert [s["values"] for s in study["sizes"]] == values
    if values:
        assert row(study, "dynamic=True")["setting"] == ["torch.compile(scale, dynamic=True)"]


@pytest.mark.thorough
@pytest.mark.parametrize(("source", "reported"), [
    ("import torch\nprint(input())", "give every run the same input"),
    ("import torch\ntorch.compile\nprint('fine')", "does not call torch.compile"),
])
def test_a_program_that_cannot_be_studied_leaves_nothing(source: str, reported: str, tmp_path: Path) -> None:
    write(tmp_path, source)
    done = command(tmp_path, "shapes", *QUICK, "train.py", stdin="")
    assert (done.returncode, done.stdout) == (2, "")
    assert reported in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.thorough
def test_ctrl_c_reports_the_results_so_far(tmp_path: Path) -> None:
    write(tmp_path, """
        import time
        import torch
        f = torch.compile(lambda x: x + 1)
        for n in range(3, 8):
            f(torch.ones(n))
        if "as written" not in __import__("os").environ["TORCHTRIAGE_POLICY"]:
            print("waiting", flush=True)
            time.sleep(300)
    """)
    words = [*TORCHTRIAGE, "shapes", *QUICK, "-o", "out", "train.py"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any("recording the sizes" in line for line in running.stderr)
        time.sleep(1)
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=600)
    assert running.returncode == 130, err
    assert "interrupted" in out
    assert (tmp_path / "out.triage" / "shapes.json").exists()
