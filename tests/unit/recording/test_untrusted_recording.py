"""A recording from elsewhere reads no other file, never hangs the reader, and runs nothing that it contains."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.recording.test_damaged_recording import RUNS, Outcome, assert_ends_normally, execute, report
from torchtriage.errors import TriageError
from torchtriage.recording import database
from torchtriage.recording.events import Tap
from torchtriage.recording.reader import LAUNCHER_FILE, PROOFS_FILE, STUDY_FILE, read_recording
from torchtriage.recording.recorder import Recorder
from torchtriage.recording.store import Writer, read_process

SECRET = "the secret of this machine"
[DEMO] = [run for run in RUNS if run.name.startswith("demo")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    return Path(shutil.copytree(DEMO, tmp_path / "demo.triage"))


def process_file(run: Path) -> Path:
    return next(path for path in run.glob("*.sqlite") if path.name != LAUNCHER_FILE)


def full_report(run: Path) -> Outcome:
    return report(run, "--format", "json", "--events", "--verbose")


@pytest.mark.parametrize("name", [
    "{stem}.error", STUDY_FILE, PROOFS_FILE, "other-1.sqlite", "launcher.error", "run_id", "joined",
])
def test_a_link_in_a_recording_is_not_followed(run: Path, tmp_path: Path, name: str) -> None:
    path = run / name.format(stem=process_file(run).stem)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "secret")
    outcome = full_report(run)
    assert_ends_normally(outcome)
    assert SECRET not in outcome.stdout
    if path.suffix in (".error", ".sqlite", ".json"):
        assert "symbolic link" in outcome.stdout


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_link_in_place_of_a_log_is_not_followed(run: Path, tmp_path: Path, suffix: str) -> None:
    path = process_file(run)
    Path(f"{path}{suffix}").symlink_to(tmp_path / "secret")
    assert report(run).stderr.endswith(f"{path.name}{suffix} is a symbolic link; a recording has regular files only\n")
    assert (tmp_path / "secret").read_text() == SECRET


@pytest.mark.parametrize(
    "name", ["{stem}.error", STUDY_FILE, PROOFS_FILE, "other-1.sqlite", "run_id", "{stem}.sqlite-wal", "joined"],
)
def test_a_pipe_in_a_recording_is_not_waited_for(run: Path, name: str) -> None:
    path = run / name.format(stem=process_file(run).stem)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert_ends_normally(full_report(run))


def test_a_pipe_in_place_of_its_files_does_not_stop_a_program(tmp_path: Path) -> None:
    facts = {"host": "box", "rank": None}
    os.mkfifo(tmp_path / f"box-{os.getpid()}.sqlite")
    recorder = Recorder(tmp_path, lambda: facts, always=True)
    recorder.add(Tap(name="trace"))
    recorder._flush()
    assert recorder._writer is not None
    assert recorder._writer.path.name == f"box-{os.getpid()}-2.sqlite"
    os.mkfifo(recorder._writer.path.with_suffix(".error"))
    recorder._error = "full"
    recorder._write_error_file()
    recorder.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ROW_SECONDS", 0.05)


ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n) select "


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("statements", [
    ["drop table events", f"create view events as {ENDLESS} 'tap' kind, '{{}}' payload, 0 time, 0 step, 0 rank, 0 pid, "
     "'' compile_id, x id from n"],
    ["drop table facts", f"create view facts as {ENDLESS} 'schema' key, '1' value from n where x < 0"],
    ["drop table sources", "create table sources (path, line, first_line, qualname, "
     "text text generated always as (hex(zeroblob(30000000))) virtual)", "insert into sources values (1, 2, 3, 4)"],
    ["drop table series", "create virtual table series using fts5(name, steps, data)"],
], ids=["events", "facts", "sources", "series"])
def test_what_is_not_a_table_is_refused(run: Path, statements: list[str]) -> None:
    for statement in statements:
        execute(process_file(run), statement, ())
    outcome = report(run)
    assert_ends_normally(outcome)
    assert outcome.status == 2
    assert "not a recording of torchtriage" in outcome.stderr


@pytest.mark.usefixtures("short")
def test_a_table_that_takes_forever_is_left_out(tmp_path: Path) -> None:
    """SQLite sorts by `id` before the first row, if that is not the key of the table."""
    path = tmp_path / "box-1.sqlite"
    Writer(path).close()
    columns = "kind, payload, time, step, rank, pid, compile_id, id"
    execute(path, "drop table events", ())
    execute(path, f"create table events ({columns})", ())
    values = "'tap', '{}', 0, 0, 0, 0, '', -x"
    execute(path, f"insert into events ({columns}) {ENDLESS} {values} from n limit 1000000", ())
    process = read_process(path)
    [damage] = process.damage
    assert damage.name == "the rest of events"
    assert damage.problem == "a row takes longer than 0.05 s; 0 rows could be read"


def test_pages_that_form_a_loop_end(tmp_path: Path) -> None:
    """Every child of an inner page is made to be the same page, so the table has far more rows than bytes."""
    path = tmp_path / "box-1.sqlite"
    writer = Writer(path)
    writer.put([Tap(name="x" * 500)] * 3000)
    writer.close()
    with closing(sqlite3.connect(path)) as db:
        [root] = db.execute("select rootpage from sqlite_master where name = 'events'").fetchone()
        [size] = db.execute("pragma page_size").fetchone()
    content = bytearray(path.read_bytes())
    start = (root - 1) * size
    assert content[start] == 5      # an inner page of a table
    num_cells = int.from_bytes(content[start + 3:start + 5], "big")
    cells = [int.from_bytes(content[start + 12 + 2 * i:start + 14 + 2 * i], "big") for i in range(num_cells)]
    first = content[start + cells[0]:start + cells[0] + 4]
    for cell in cells:
        content[start + cell:start + cell + 4] = first
    path.write_bytes(content)
    process = read_process(path)
    assert len(process.events) < 3500


@pytest.mark.parametrize("page", [1, 2, 3])
def test_a_damaged_page_loses_the_rows_behind_it_only(tmp_path: Path, page: int) -> None:
    path = tmp_path / "box-1.sqlite"
    writer = Writer(path)
    writer.put([Tap(name="x" * 500)] * 300, facts={"pid": 7})
    writer.close()
    with closing(sqlite3.connect(path)) as db:
        [root] = db.execute("select rootpage from sqlite_master where name = 'events'").fetchone()
    content = path.read_bytes()
    last = len(content) - page * 4096
    path.write_bytes(content[:last] + b"\xff" * 4096 + content[last + 4096:])
    process = read_process(path)
    assert root
    assert process.program.pid == 7
    assert 0 < len(process.events) < 300
    [damage] = process.damage
    assert damage.name == "the rest of events"
    assert damage.problem.endswith(f"; {len(process.events)} rows could be read")


def test_a_file_that_is_too_large_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_BYTES", 1000)
    with pytest.raises(TriageError, match=r"is larger than 1,000 bytes, which no recording is"):
        read_recording(run)


def test_an_error_file_that_is_too_large_is_left_out(run: Path) -> None:
    process_file(run).with_suffix(".error").write_bytes(b"x" * 100_000)
    outcome = full_report(run)
    assert_ends_normally(outcome)
    assert "it is larger than 65,536 bytes" in outcome.stdout
    assert len(outcome.stdout) < len(full_report(DEMO).stdout) + 10_000


def killed(folder: Path) -> Iterator[Path]:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom torchtriage.recording.store import Writer\n"
        "from torchtriage.recording.events import Tap\nwriter = Writer(Path(sys.argv[1]))\n"
        "for i in range(50):\n    writer.put([Tap(name=str(i))])\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(folder / "box-1.sqlite")], check=False, timeout=600)
    yield folder / "box-1.sqlite"


@pytest.mark.parametrize("left", ["as it is", "without its -shm", "open in this process"])
def test_a_live_or_killed_recording_is_read_in_full(tmp_path: Path, left: str) -> None:
    names = [str(i) for i in range(50)]
    if left == "open in this process":
        writer = Writer(tmp_path / "box-1.sqlite")
        writer.put([Tap(name=name) for name in names])
        assert [tap.name for tap in read_process(tmp_path / "box-1.sqlite").of(Tap)] == names
        writer.put([Tap(name="more")])
        writer.close()
        assert [tap.name for tap in read_process(tmp_path / "box-1.sqlite").of(Tap)] == [*names, "more"]
        return
    [path] = killed(tmp_path)
    assert Path(f"{path}-wal").stat().st_size > path.stat().st_size
    if left == "without its -shm":
        Path(f"{path}-shm").unlink()
    assert [tap.name for tap in read_process(path).of(Tap)] == names


@pytest.mark.parametrize("depth", [40, 60, 300, 900, 990, 90_000])
@pytest.mark.parametrize("key", ["telemetry", "train", "policy", "argv"])
def test_deep_json_is_left_out_or_reported(run: Path, key: str, depth: int) -> None:
    value = '{"x": ' * depth + "1" + "}" * depth
    execute(process_file(run), "insert or replace into facts values (?, ?)", (key, value))
    outcome = full_report(run)
    assert_ends_normally(outcome)
    if depth > 50:
        assert any(f["code"] == "TT908" for f in json.loads(outcome.stdout)["findings"])
