"""The history and the Chrome trace of real programs agree with the report, for every source."""

import json
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.programs import Outcome, command, observe, plain, torch_version, write
from tests.unit.reporters.traces import of_phase, read_trace, tracks
from torchtriage.commands.report import read_source
from torchtriage.diagnosis.report import build_report
from torchtriage.findings.history import FrameHistory, History, MomentKind
from torchtriage.findings.report import Report

SICK = """
import torch

torch._dynamo.config.recompile_limit = 3
compiled = lambda **options: lambda f: torch.compile(f, backend="eager", **options)

def helper(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

@compiled()
def chained(x):
    x = x * 2
    print("one")
    x = helper(x) + 1
    print("two")
    return x.sin().cos()

@compiled(dynamic=False)
def by_size(x):
    return x + 1

@compiled()
def eager(x):
    for _ in range(2):
        try:
            print("in a try")
        finally:
            x = x + 1
    return x

@compiled()
def generator(x):
    yield x + 1

class Squared(torch.nn.Module):
    def forward(self, x):
        return (x * self.weight).square().sum()
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

model = Squared()
trained = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    chained(torch.ones(4 + step % 2))
    by_size(torch.ones(2 + step))
    eager(torch.ones(3))
    trained(torch.ones(4)).backward()
    optimizer.step()
list(generator(torch.ones(2)))
torch._dynamo.reset()
chained(torch.ones(4))
by_size(torch.ones(2))
by_size(torch.ones(3))
"""

COMPILES = (MomentKind.COMPILE, MomentKind.RECOMPILE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    seen = observe(tmp_path_factory.mktemp("run"), SICK)
    assert seen.status == 0, seen.stderr
    return seen


@pytest.fixture(scope="module")
def report(run: Outcome) -> Report:
    return drawn(run.folder)


def drawn(source: Path) -> Report:
    return build_report(read_source(str(source)), with_history=True)


def num_moments(history: History, *kinds: MomentKind) -> int:
    return sum(1 for moment in history.moments if moment.kind in kinds and not moment.is_backward)


def frame(history: History, name: str) -> FrameHistory:
    [found] = [f for f in history.frames if f.name == name]
    return found


def test_the_timeline_has_as_many_marks_as_the_report_counts(report: Report) -> None:
    totals, history = report.totals, report.history
    assert num_moments(history, *COMPILES) == totals["compiles"]
    assert num_moments(history, MomentKind.RECOMPILE) == totals["recompiles"]
    assert num_moments(history, MomentKind.BREAK) == totals["graph_breaks"]
    assert sum(f.num_compiles for f in history.frames) == totals["compiles"]
    assert sum(f.is_at_limit for f in history.frames) == totals["frames_at_limit"] == 1
    [process] = history.processes
    assert (
        process.num_compiles,
        process.num_breaks,
        process.eager_calls,
        process.compile_seconds,
        process.num_steps,
    ) == (totals["compiles"], totals["graph_breaks"], totals["eager_calls"], totals["compile_seconds"], totals["steps"])


def test_every_mark_is_within_the_run_and_in_order(report: Report) -> None:
    history = report.history
    assert history.seconds is not None
    times = [m.time for m in history.moments]
    assert times == sorted(times)
    assert all(m.time > 0 and m.time + (m.seconds or 0.0) <= history.seconds for m in history.moments)
    assert all(m.seconds is not None for m in history.moments if m.kind in COMPILES)
    steps = {m.step for m in history.moments if m.label == "by_size"}
    assert {1, 2} <= steps


def test_every_break_and_recompile_names_a_finding_of_the_report(report: Report) -> None:
    codes = {f.fingerprint: f.code for f in report.findings}
    named = {
        kind: {codes.get(m.fingerprint, m.fingerprint)[:3] for m in report.history.moments if m.kind is kind}
        for kind in MomentKind
    }
    assert named[MomentKind.BREAK] == {"TT1"}
    assert named[MomentKind.RECOMPILE] <= {"TT1", "TT2"}
    assert named[MomentKind.LIMIT] == {"TT3"}
    by_finding = Counter(m.fingerprint for m in report.history.moments if m.kind is MomentKind.BREAK)
    assert by_finding == {f.fingerprint: f.evidence.num_events for f in report.findings if f.code.startswith("TT1")}


def test_a_break_within_a_call_and_two_prints_make_four_pieces(report: Report) -> None:
    chain = frame(report.history, "chained").chain
    assert [link.is_break for link in chain] == [False, True] * 3 + [False]
    assert [link.label.partition(" at ")[0] for link in chain if link.is_break][::2] == ["print()", "print()"]
    assert [link.num_ops for link in chain if not link.is_break] == [1, 0, 1, 2]


def test_an_eager_frame_is_a_single_break(report: Report) -> None:
    assert [(link.is_break, "runs eager" in link.detail) for link in frame(report.history, "eager").chain] == [
        (True, True)
    ]
    if torch_version() < (2, 13):
        assert "generator" not in {f.name for f in report.history.frames}   # this torch skips it silently
        return
    assert [(link.is_break, "runs eager" in link.detail) for link in frame(report.history, "generator").chain] == [
        (True, True)
    ]


def test_a_frame_has_the_size_of_each_compile(report: Report) -> None:
    found = frame(report.history, "by_size")
    assert [dict(c.values)["x.size(0)"] for c in found.compiles] == ["2", "3", "4", "2", "3"]
    assert [len(c.guards_failed) for c in found.compiles] == [0, 1, 2, 0, 1]


def test_the_backward_is_separate_from_its_forward(report: Report) -> None:
    forward, backward = (m for m in report.history.moments if m.label.startswith("Squared.forward"))
    assert (forward.is_backward, backward.is_backward) == (False, True)
    assert backward.time >= forward.time + (forward.seconds or 0.0)


def test_steps_are_where_they_happened(report: Report) -> None:
    history = report.history
    [curve] = [c for c in history.curves if c.name == "step_seconds"]
    assert len(curve.times) == len(curve.steps) == 5
    for m in history.moments:
        if m.step and m.step + 1 in curve.steps:    # what happens after step N is part of step N + 1
            begin = curve.times[list(curve.steps).index(m.step + 1)]
            length = curve.values[list(curve.steps).index(m.step + 1)]
            assert begin - 0.01 <= m.time <= begin + length + 0.01, m


def test_the_trace_agrees_with_the_totals_of_the_report(run: Outcome, tmp_path: Path) -> None:
    done = command(tmp_path, "report", str(run.folder), "-o", "run.trace.json")
    assert done.returncode == 0, done.stderr
    trace = read_trace((tmp_path / "run.trace.json").read_text())
    totals = run.report["totals"]
    assert trace["otherData"]["totals"] == totals
    slices = Counter(row["cat"] for row in of_phase(trace, "X") if not row["name"].endswith(", backward"))
    assert slices == {
        "compile": totals["compiles"] - totals["recompiles"],
        "recompile": totals["recompiles"],
        "step": totals["steps"] - 1,
    }
    assert len(of_phase(trace, "i", "graph break")) == totals["graph_breaks"]
    assert tracks(trace) == ["main process"]
    assert {row["args"]["finding"] for row in of_phase(trace, "i", "graph break")} <= set(run.codes)


# other sources of the same run

@pytest.mark.thorough
def test_a_torch_trace_has_the_same_marks_and_chains_but_no_steps(report: Report, tmp_path: Path) -> None:
    script = write(tmp_path, SICK)
    # torch 2.9 traces a break that skips a frame only with TORCH_LOGS.
    env = {"TORCH_TRACE": str(tmp_path / "trace"), "TORCH_LOGS": "graph_breaks"}
    assert plain(tmp_path, script, env=env).returncode == 0
    other = drawn(tmp_path / "trace").history
    assert kinds_and_names(other) == kinds_and_names(report.history)
    assert [f.chain and [(link.is_break, link.num_ops) for link in f.chain] for f in by_name(other)] == [
        f.chain and [(link.is_break, link.num_ops) for link in f.chain]
        for f in by_name(report.history)
        if f.name != "generator"
    ]
    assert {m.step for m in other.moments} == {None}
    [process] = other.processes
    assert (process.num_steps, process.eager_calls, process.steady_step) == (None, None, None)
    assert other.curves == ()


def kinds_and_names(history: History) -> Counter[tuple[str, str]]:
    """Without skips and anomalies of the training, which only a recording has."""
    only_recorded = (MomentKind.SKIP, MomentKind.ANOMALY)
    return Counter((m.kind.value, m.compile_id) for m in history.moments if m.kind not in only_recorded)


def by_name(history: History) -> list[FrameHistory]:
    return sorted(history.frames, key=lambda f: f.name.rpartition(".")[2])


@pytest.mark.thorough
def test_a_text_log_has_recompiles_and_breaks_without_durations(report: Report, tmp_path: Path) -> None:
    script = write(tmp_path, SICK)
    done = plain(tmp_path, script, env={"TORCH_LOGS": "+graph_breaks,recompiles"})
    (tmp_path / "run.log").write_text(done.stderr)
    other = drawn(tmp_path / "run.log")
    assert num_moments(other.history, MomentKind.COMPILE) == 0
    for kind, name in (
        (MomentKind.RECOMPILE, "recompiles"),
        (MomentKind.BREAK, "graph_breaks"),
        (MomentKind.LIMIT, "frames_at_limit"),
    ):
        assert num_moments(other.history, kind) == other.totals[name] == report.totals[name]
    assert {m.seconds for m in other.history.moments} == {None}
    assert other.history.processes[0].compile_seconds is None
    assert frame(other.history, "by_size").is_at_limit


# several processes

@pytest.mark.thorough
def test_ranks_are_tracks_of_one_trace(tmp_path: Path) -> None:
    write(tmp_path, """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        @torch.compile(backend="eager", dynamic=False)
        def on_both(x):
            return x + 1
        for size in range(2, 4 + dist.get_rank()):
            on_both(torch.ones(size))
        dist.destroy_process_group()
        """)
    run = partial(command, tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = run("run", "-q", "-o", "out", "--", *torchrun, "train.py")
    assert done.returncode == 0, done.stderr
    history = drawn(tmp_path / "out.triage").history
    assert [(p.name, p.num_compiles, p.num_recompiles) for p in history.processes] == [
        ("rank 0", 2, 1),
        ("rank 1", 3, 2),
    ]
    assert Counter(m.process for m in history.moments) == {0: 2, 1: 3}
    assert [(f.name, f.process) for f in sorted(history.frames, key=lambda f: f.process)] == [
        ("on_both", 0),
        ("on_both", 1),
    ]
    trace = read_trace(run("report", "out.triage", "--format", "chrome").stdout)
    assert tracks(trace) == ["rank 0", "rank 1"]
    assert Counter(row["pid"] for row in of_phase(trace, "X")) == {1: 2, 2: 3}


def test_a_source_without_times_gives_a_trace_that_says_so(tmp_path: Path) -> None:
    log = "Recompiling function f in /app/a.py:3\n    triggered by the following guard failure(s):\n    - 0/0: k == 2\n"
    done = command(tmp_path, "report", "-", "--format", "chrome", stdin=log)
    trace: dict[str, Any] = read_trace(done.stdout)
    assert {row["ph"] for row in trace["traceEvents"]} == {"M"}
    assert "compile times" in trace["otherData"]["not_seen"]
    assert trace["otherData"]["totals"]["recompiles"] == 1
    assert json.loads(done.stdout)["otherData"]["run_start"] is None
