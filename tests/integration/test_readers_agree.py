"""`run`, TORCH_TRACE and TORCH_LOGS give the same findings for a script, wherever they have the same facts."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.programs import TORCHTRIAGE, Outcome, command, environment, observe, write

SICK = """
import copy, warnings
import torch
import torch.nn as nn

torch._dynamo.config.recompile_limit = 4

def compiled(function=None, **options):
    return lambda f: torch.compile(f, backend="eager", **options)

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = nn.Linear(4, 4), 0
        self.drop = nn.Dropout(0.5)
    def forward(self, x):
        self.calls += 1
        return self.drop(self.body(x))

class Printing(nn.Module):
    def forward(self, x):
        x = x * 2
        print("in a module")
        return helper(x)

def helper(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

@compiled()
def item(x):
    x = x + 1
    return x * x.sum().item()

@compiled()
def whole_frame(x):
    for _ in range(2):
        try:
            print("in a try")
        finally:
            x = x + 1
    return x

@compiled()
def nested_item(x):
    return helper(x) + float(x.mean())

@compiled(dynamic=False)
def by_size(x):
    return x + 1

@compiled()
def by_float(x, scale):
    return x * scale

@compiled()
def by_key(table, key):
    return table[key] + 1

@compiled()
def by_dtype(x):
    return x + 1

@compiled()
def copies(x):
    y = copy.deepcopy(x)
    return y + 1

@compiled()
def shapes(x):
    return x.nonzero() + 1

@compiled()
def generator(x):
    yield x + 1

def main():
    x = torch.ones(4)
    policy = torch.compile(Policy(), backend="eager")
    for i in range(3):
        policy(torch.ones(2, 4))
        policy.train(i % 2 == 0)
    torch.compile(Printing(), backend="eager")(x)
    for size in range(2, 10):
        by_size(torch.ones(size))
    for scale in (0.1, 0.2, 0.3):
        by_float(x, scale)
    for i in range(3):
        by_key({(i, i): x}, (i, i))
    for dtype in (torch.float32, torch.float64, torch.int64):
        by_dtype(x.to(dtype))
    for function in (item, whole_frame, nested_item, copies, shapes):
        for size in (4, 5):
            function(torch.ones(size))
    list(generator(x))
    torch._dynamo.reset()
    item(x)
    by_size(torch.ones(2))
    by_size(torch.ones(3))

main()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("agree")
    script = write(folder, SICK)
    env = environment({"TORCH_TRACE": "trace", "TORCH_LOGS": "graph_breaks,recompiles"})
    done = subprocess.run(
        [sys.executable, script.name], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    (folder / "run.log").write_text(done.stderr)
    seen = observe(folder, SICK)
    assert seen.status == 0, seen.stderr
    return {"run": seen.report, "trace": read(folder / "trace"), "log": read(folder / "run.log")}


def read(source: Path) -> dict[str, Any]:
    return Outcome(0, "", "", source).report


def places(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    """(code, function, line) of the findings on breaks, recompiles and limits; only a recording has classes."""
    return sorted(
        (f["code"], f["function"].rpartition(".")[2], f["line"]) for f in report["findings"]
        if f["code"].startswith(("TT1", "TT2")) or f["code"] == "TT301"
    )


def test_the_script_has_every_family_of_findings(reports: dict[str, dict[str, Any]]) -> None:
    codes = {code for code, _, _ in places(reports["run"])}
    assert len([code for code in codes if code.startswith("TT1")]) >= 5
    assert len([code for code in codes if code.startswith("TT2")]) >= 4
    assert "TT301" in codes


@pytest.mark.parametrize("other", ["trace", "log"])
def test_the_findings_are_the_same(other: str, reports: dict[str, dict[str, Any]]) -> None:
    assert places(reports[other]) == places(reports["run"])


def test_the_fingerprints_are_the_same(reports: dict[str, dict[str, Any]]) -> None:
    """Only a recording has the source line of a frame that recompiles, so for recompiles the other two are compared."""

    def fingerprints(reader: str, family: str) -> set[tuple[str, int, str]]:
        return {
            (f["code"], f["line"], f["fingerprint"])
            for f in reports[reader]["findings"]
            if f["code"].startswith(family)
        }

    assert fingerprints("trace", "TT1") == fingerprints("log", "TT1")
    assert fingerprints("trace", "TT2") == fingerprints("log", "TT2")
    in_functions = {found for found in fingerprints("run", "TT1") if found[1] != line_of('print("in a module")')}
    assert in_functions <= fingerprints("trace", "TT1")


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SICK.lstrip("\n").splitlines(), start=1) if text in line)


def test_the_totals_are_the_same(reports: dict[str, dict[str, Any]]) -> None:
    names = ("graph_breaks", "distinct_graph_breaks", "recompiles", "frames_at_limit")
    run, trace, log = (
        {name: report["totals"][name] for name in names} for report in (reports[k] for k in ("run", "trace", "log"))
    )
    assert trace == run
    assert log == run
    assert reports["trace"]["totals"]["compiles"] == reports["run"]["totals"]["compiles"]


def test_each_source_lists_what_it_cannot_show(reports: dict[str, dict[str, Any]]) -> None:
    assert reports["run"]["totals"]["eager_calls"] is not None
    assert reports["trace"]["totals"]["eager_calls"] is None
    assert "compile times" in reports["log"]["not_seen"]
    assert "compile times" not in reports["trace"]["not_seen"]


def test_a_pasted_fragment_gives_a_finding_at_an_unknown_place(tmp_path: Path) -> None:
    fragment = (
        "[__recompiles] Recompiling function flex_attention\n"
        "    triggered by the following guard failure(s):\n"
        "    - tensor 'key' size mismatch at index 2. expected 100, actual 101\n"
    )
    done = command(tmp_path, "report", "-", "--format", "json", stdin=fragment)
    assert done.returncode == 0
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["code"].startswith("TT2")
    assert (finding["path"], finding["line"], finding["function"]) == ("unknown", None, "flex_attention")
    assert "key" in finding["cause"]
    assert "unknown" in command(tmp_path, "report", "-", stdin=fragment).stdout


@pytest.mark.thorough
def test_a_run_can_be_read_while_it_continues(tmp_path: Path) -> None:
    source = """
        import sys, torch
        @torch.compile(backend="eager", dynamic=False)
        def f(x):
            x = x + 1
            print("inside")
            return x
        f(torch.ones(2))
        for line in sys.stdin:
            f(torch.ones(int(line)))
            print("done", flush=True)
        """
    script = write(tmp_path, source)
    run = subprocess.Popen(
        [*TORCHTRIAGE, "run", "-q", "-o", "out", script.name],
        cwd=tmp_path,
        env=environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdin is not None
    assert run.stdout is not None
    counts = []
    try:
        for size in (3, 4, 5):
            run.stdin.write(f"{size}\n")
            run.stdin.flush()
            while run.stdout.readline() != "done\n":
                pass
            counts.append(breaks_on_disk(tmp_path / "out.triage", size - 1))
    finally:
        run.stdin.close()
        rest = run.stdout.read()
        assert run.wait(timeout=600) == 0
        run.stdout.close()
        assert run.stderr is not None
        run.stderr.close()
    assert counts == [2, 3, 4]
    assert "TT101" in rest


def breaks_on_disk(folder: Path, expected: int) -> int:
    """The report once the recorder has written the events; a run that continues is not reported as dead."""
    for _ in range(600):
        report = read(folder)
        assert "TT902" not in [f["code"] for f in report["findings"]]
        if report["totals"]["graph_breaks"] >= expected:
            break
        time.sleep(0.1)
    return int(report["totals"]["graph_breaks"])
