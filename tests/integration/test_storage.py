"""The recording is complete where WAL is refused, where the reader may not write, and after a kill."""

import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.programs import WAIT_FOR_BREAKS, Outcome, command, observe
from torchtriage.recording.events import GraphBreak
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recorder import Recorder
from torchtriage.recording.recording import Series
from torchtriage.recording.store import Writer, read_process

pytestmark = pytest.mark.thorough

BREAK = """
import os, signal, time
import torch

def broken(name):
    space = {}
    exec(compile(f"def {name}(x):\\n    print('{name}')\\n    return x + 1\\n", __file__, "exec"), space)
    torch.compile(space[name], backend="eager")(torch.ones(2))
"""

# Every process of the run treats its folder as one on a network, and copies often.
ON_NETWORK = """
from torchtriage.recording import store
store._on_network = lambda path: True
store.COPY_SECONDS = 0.3
"""


def on_network(folder: Path) -> dict[str, str]:
    """The environment of a run whose output is on a network file system and whose local disk is below `folder`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(ON_NETWORK)
    (folder / "local").mkdir()
    path = os.pathsep.join(filter(None, (str(folder / "site"), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "TMPDIR": str(folder / "local")}


def breaks(seen: Outcome) -> list[str]:
    return [e["function"] for e in seen.report["events"]["graph_breaks"]]


def test_on_a_network_file_system_the_complete_recording_arrives_at_the_end(tmp_path: Path) -> None:
    seen = observe(
        tmp_path,
        BREAK + "broken('first')\nif os.fork() == 0:\n    broken('in_child')\n    os._exit(0)\nos.wait()\n",
        env=on_network(tmp_path),
    )
    assert seen.status == 0, seen.stderr
    assert sorted(breaks(seen)) == ["first", "in_child"]
    assert seen.report["run"]["exit_status"] == 0
    assert not [code for code in seen.codes if code.startswith("TT9")]
    assert {path.suffix for path in seen.folder.iterdir()} <= {".sqlite", ""}    # neither a log nor half a copy
    for path in seen.folder.glob("*.sqlite"):
        with sqlite3.connect(path) as db:
            assert db.execute("pragma journal_mode").fetchone()[0] != "wal"
    assert not [p for p in (tmp_path / "local").glob("torchtriage-*") if any(p.iterdir())]


def test_on_a_network_file_system_a_kill_loses_only_uncopied_events(tmp_path: Path) -> None:
    source = (
        BREAK + WAIT_FOR_BREAKS
        + "broken('first')\nwait_for_breaks(1)\nbroken('second')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    seen = observe(tmp_path, source, env=on_network(tmp_path))
    assert seen.status == 137
    assert breaks(seen)[0] == "first"
    assert "TT902" in seen.codes


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that others may enter; pytest's own is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="torchtriage-test-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def as_someone_else(function: Callable[[], object]) -> str:
    """The result of the function, as JSON, called by a user without write access."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.seteuid(65534)
            result = json.dumps(function())
        except BaseException as error:
            result = repr(error)
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


@pytest.mark.parametrize("left", ["closed", "killed", "killed, without its -shm"])
def test_a_read_only_folder_can_be_read(left: str, elsewhere: Path) -> None:
    folder = elsewhere / "out.triage"
    program = f"""
import os, signal
from pathlib import Path
from torchtriage.recording.events import GraphBreak
from torchtriage.recording.store import Writer
writer = Writer(Path({str(folder)!r}) / "here-1.sqlite")
writer.put([GraphBreak(type=str(i)) for i in range(100)], facts={{"pid": 1}})
writer.close() if {left!r} == "closed" else os.kill(os.getpid(), signal.SIGKILL)
"""
    folder.mkdir()
    (folder / "run_id").write_text("x")
    subprocess.run([sys.executable, "-c", program], check=False, timeout=600)
    assert (folder / "here-1.sqlite-wal").exists() == (left != "closed")
    if "without" in left:
        (folder / "here-1.sqlite-shm").unlink()
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    before = sorted(path.name for path in folder.iterdir())

    def read() -> list[str]:
        (process,) = read_recording(folder).processes
        return [e.type for e in process.of(GraphBreak)]

    assert as_someone_else(read) == json.dumps([str(i) for i in range(100)])
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_series_is_stored_as_float32_and_a_long_run_stays_small(tmp_path: Path) -> None:
    from torchtriage.capture.taps.steps import MAX_POINTS, StepCounter

    rng = random.Random(0)
    values = [rng.uniform(-1e6, 1e6) for _ in range(1000)] + [math.inf, -math.inf, math.nan, 0.0, 1e-45]
    series = Series(name="loss", steps=[float(i) for i in range(len(values))], values=values)
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(series=[Series(name="loss", steps=[1.0], values=[1.0])])
    writer.put(series=[series])
    writer.close()
    found = read_process(tmp_path / "p.sqlite").series["loss"]
    assert list(found.steps) == series.steps
    for read, written in zip(found.values, values, strict=True):
        assert read == pytest.approx(written, rel=1e-6, nan_ok=True)

    counter = StepCounter()
    for hour in range(20):
        counter.marks.extend(hour * 5000.0 + step for step in range(5000))     # one step per second
        assert len(counter.series().values) <= MAX_POINTS
    assert set(counter.series().values) == {1.0}
    assert not counter.marks


def test_a_flood_of_events_stays_bounded_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchtriage.recording.recorder.MAX_EVENTS", 500)
    monkeypatch.setattr("torchtriage.recording.recorder.MAX_QUEUE", 200)
    folder = tmp_path / "out.triage"
    recorder = Recorder(folder, lambda: {"host": "here", "rank": None, "start": 1.0})
    for i in range(20_000):
        recorder.add(GraphBreak(path="train.py", line=3, type="storm", compile_id=f"{i}/0"))
    recorder.close()
    done = command(tmp_path, "report", str(folder), "--format", "json")
    report = json.loads(done.stdout)
    (dropped,) = (f for f in report["findings"] if f["code"] == "TT907")
    assert report["totals"]["graph_breaks"] + dropped["num_events"] == 20_000
    assert report["totals"]["graph_breaks"] <= 700
