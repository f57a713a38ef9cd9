"""`run --measure` times the compiled pieces and the gaps at each break; without it nothing is guessed."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.programs import Outcome, observe, plain, write
from torchtriage.recording.events import GapTime, PieceTime
from torchtriage.recording.reader import read_recording

STEPS = 25
SOURCE = f"""
import json, time
import torch
from torch._dynamo.utils import counters

optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])

@torch.compile(backend="eager")
def slow(x):
    x = x + 1
    time.sleep(0.02)
    return x * 2

@torch.compile(backend="eager")
def quick(x):
    x = x + 1
    print("quick")
    return x * 2

x = torch.ones(4)
for _ in range({STEPS}):
    x = quick(slow(x)) / 4
    optimizer.step()
frames, stats, breaks = counters["frames"], counters["stats"], counters["graph_break"]
print(json.dumps([x.tolist(), dict(frames), dict(stats), sum(breaks.values())]))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return observe(tmp_path_factory.mktemp("measured"), SOURCE, flags=["-q", "--measure"])


def at(seen: Outcome, function: str) -> dict[str, object]:
    """The cost of the break in a function."""
    return next(f["cost"] for f in seen.report["findings"] if f["function"] == function and f["code"].startswith("TT1"))


def test_a_gap_of_twenty_milliseconds_is_measured(measured: Outcome) -> None:
    slow, quick = at(measured, "slow"), at(measured, "quick")
    assert slow["kind"] == "observed"
    assert 10 < slow["ms_per_step"] < 2000  # type: ignore[operator]  # a float of the JSON
    assert quick["ms_per_step"] < slow["ms_per_step"]  # type: ignore[operator]
    assert "ms per step" in measured.stdout
    assert "not measured" not in measured.stdout


def test_every_piece_and_gap_is_counted(measured: Outcome) -> None:
    (process,) = read_recording(measured.folder).processes
    pieces = {e.compile_id: e.calls for e in process.of(PieceTime)}
    assert pieces == {"0/0": STEPS, "1/0": STEPS, "2/0": STEPS, "3/0": STEPS}
    gaps = {(e.compile_id, e.to_compile_id): e.calls for e in process.of(GapTime)}
    # A gap in which something was compiled is not a run-time cost, so the first of each is excluded.
    assert gaps == {
        ("0/0", "1/0"): STEPS - 1,
        ("1/0", "2/0"): STEPS - 1,
        ("2/0", "3/0"): STEPS - 1,
        ("3/0", "0/0"): STEPS - 1,
    }


@pytest.mark.thorough
def test_measuring_does_not_change_the_run(measured: Outcome, tmp_path: Path) -> None:
    alone = plain(tmp_path, write(tmp_path, SOURCE))
    last = alone.stdout.splitlines()[-1]
    assert json.loads(last)[1]["total"] == 4
    assert last in measured.stdout.splitlines()


def test_without_measure_the_cost_is_unknown_and_measure_is_suggested(tmp_path: Path) -> None:
    seen = observe(tmp_path, SOURCE.replace("0.02", "0.0"), flags=["-q"])
    cost = at(seen, "slow")
    assert cost["ms_per_step"] is None
    assert "not measured" in str(cost["note"])
    assert "torchtriage run --measure" in str(cost["note"])
    assert any("run --measure" in text for text in seen.report["not_seen"])
    (process,) = read_recording(seen.folder).processes
    assert not list(process.of(PieceTime))


@pytest.mark.thorough
def test_a_child_process_measures_itself(tmp_path: Path) -> None:
    source = textwrap.dedent("""
        import os, torch
        @torch.compile(backend="eager")
        def f(x):
            return x + 1
        for _ in range(30):
            f(torch.ones(2))
        child = os.fork()
        if child == 0:
            torch.compile(lambda x: x + 3, backend="eager")(torch.ones(2))
            for _ in range(3):
                f(torch.ones(2))
            os._exit(0)
        os.waitpid(child, 0)
        """)
    seen = observe(tmp_path, source, env={"TORCHTRIAGE_MEASURE": "1"})
    parent, child = read_recording(seen.folder).processes
    assert {e.compile_id: e.calls for e in parent.of(PieceTime)} == {"0/0": 30}
    assert {e.compile_id: e.calls for e in child.of(PieceTime)} == {"0/0": 3, "1/0": 1}
