"""The file of a process is read as it was written, also while it grows and after a kill; damage is reported."""

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.errors import TriageError
from torchtriage.recording import store
from torchtriage.recording.events import CompileEnd, GraphBreak, Recompile, StackEntry, Tap, Unparsed
from torchtriage.recording.recording import Series, Source
from torchtriage.recording.store import SCHEMA, Writer, read_process

EVENTS = (
    GraphBreak(
        path="a.py", line=3, function="f", type="print", hints=("one", "two"), time=1.5, step=2, rank=0, pid=7,
        compile_id="0/0",
    ),
    Recompile(
        path="a.py", line=1, stack=(StackEntry(path="b.py", line=9, function="main", code="f(x)"),),
        reasons=("k == 2",),
    ),
    CompileEnd(seconds=1.25, compile_id="!1/0/2"),
)
SOURCE = Source(first_line=2, lines=("def f(x):", "    print(x)", ""), qualname="Policy.f")


def edit(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def test_events_are_read_in_order(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(EVENTS[:1])
    writer.put(EVENTS[1:])
    writer.close()
    assert read_process(tmp_path / "p.sqlite").events == EVENTS


def test_the_last_value_of_a_fact_is_read(tmp_path: Path) -> None:
    facts = {
        "argv": ["train.py", "--lr", "0.1"], "rank": 1, "end": None, "environment": {"OMP_NUM_THREADS": "1"},
        "cwd": "/tmp/\udce9",
    }
    writer = Writer(tmp_path / "p.sqlite")
    writer.put_facts({**facts, "rank": 0})
    writer.put_facts({"rank": 1})
    writer.close()
    process = read_process(tmp_path / "p.sqlite")
    assert process.facts == {"schema": SCHEMA, **facts}
    assert process.rank == 1


def test_source_lines_are_stored_once(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(sources={("a.py", 3): SOURCE})
    writer.put(
        sources={("a.py", 3): Source(first_line=1, lines=("later",)), ("b.py", 1): Source(first_line=1, lines=("x",))}
    )
    writer.close()
    assert read_process(tmp_path / "p.sqlite").sources == {
        ("a.py", 3): SOURCE, ("b.py", 1): Source(first_line=1, lines=("x",)),
    }


def test_a_function_with_several_places_is_stored_once(tmp_path: Path) -> None:
    lines = ("def f(x):", *[f"    x = x + {number}  # a line of the function" for number in range(100)])
    sources = {("a.py", line): Source(first_line=1, lines=lines, qualname="f") for line in range(2, 90)}
    sources["a.py", 99] = Source(first_line=1, lines=(*lines, "below"), qualname="f")
    sources["b.py", 5] = Source(first_line=1, lines=lines, qualname="f")
    writer = Writer(tmp_path / "p.sqlite")
    for place, source in sources.items():
        writer.put(sources={place: source})
    writer.close()
    assert read_process(tmp_path / "p.sqlite").sources == sources
    with closing(sqlite3.connect(tmp_path / "p.sqlite")) as db:
        assert db.execute("select count(*) from sources where text != ''").fetchone() == (3,)


def test_a_file_name_that_is_not_utf8_is_stored(tmp_path: Path) -> None:
    path = "/home/me/mod\udce9le.py"
    writer = Writer(tmp_path / "p.sqlite")
    writer.put([Tap(name="trace"), Recompile(path=path, line=3)], sources={(path, 3): SOURCE})
    writer.close()
    process = read_process(tmp_path / "p.sqlite")
    assert process.events == (Tap(name="trace"), Recompile(path=path, line=3))
    assert process.sources == {(path, 3): SOURCE}


def test_a_series_is_stored_as_float32(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(series=[Series(name="step_seconds", steps=[2], values=[9.0])])
    writer.put(series=[Series(name="step_seconds", steps=[2, 4, 6], values=[0.1, math.inf, math.nan])])
    writer.close()
    series = read_process(tmp_path / "p.sqlite").series["step_seconds"]
    assert list(series.steps) == [2, 4, 6]
    assert series.values[0] == pytest.approx(0.1, rel=1e-7)
    assert series.values[1] == math.inf
    assert math.isnan(series.values[2])


@settings(max_examples=20)
@given(st.lists(st.builds(Tap, name=st.text(st.characters()), detail=st.text(st.characters())), max_size=5))
def test_any_text_is_stored(tmp_path_factory: pytest.TempPathFactory, events: list[Tap]) -> None:
    path = tmp_path_factory.mktemp("any") / "p.sqlite"
    writer = Writer(path)
    writer.put(events)
    writer.close()
    assert read_process(path).events == tuple(events)


def test_the_file_is_readable_while_it_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    writer = Writer(path)
    for number in range(1, 4):
        writer.put([Tap(name=str(number))])
        assert len(read_process(path).events) == number
    writer.close()


def test_a_reader_sees_only_complete_transactions(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    writer = Writer(path)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.001):
            writer.put([Tap(), Tap(), Tap()])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert [len(read_process(path).events) % 3 for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        thread.join()
        writer.close()


def test_a_closed_file_has_no_log_beside_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(EVENTS)
    writer.close()
    assert os.listdir(tmp_path) == ["p.sqlite"]
    # A file in WAL mode (2 in its header) cannot be opened in a folder that is read-only.
    assert (tmp_path / "p.sqlite").read_bytes()[18:20] == b"\x01\x01"


def test_a_reader_that_holds_the_file_does_not_stop_the_writer_from_closing(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(EVENTS)
    reader = sqlite3.connect(tmp_path / "p.sqlite")
    rows = reader.execute("select * from events")
    rows.fetchone()
    writer._db.execute("pragma busy_timeout=50").fetchone()
    writer.close()
    reader.close()
    assert read_process(tmp_path / "p.sqlite").events == EVENTS


def test_rows_written_before_a_kill_are_read(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom pathlib import Path\nfrom torchtriage.recording.store import Writer\n"
        "from torchtriage.recording.events import Tap\n"
        f"writer = Writer(Path({str(tmp_path / 'p.sqlite')!r}))\nwriter.put([Tap(name='trace')], facts={{'pid': 3}})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=600).returncode == -9
    process = read_process(tmp_path / "p.sqlite")
    assert process.events == (Tap(name="trace"),)
    assert process.facts.get("end") is None


def test_a_killed_process_is_read_from_a_read_only_folder(tmp_path: Path) -> None:
    """A copy of the main file alone, as `cp *.sqlite` would make it."""
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(EVENTS)
    writer._db.execute("pragma wal_checkpoint(full)")
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "p.sqlite").read_bytes())
    assert read_process(tmp_path / "copy.sqlite").events == EVENTS
    writer.close()


def test_opening_a_file_again_adds_to_it(tmp_path: Path) -> None:
    for event in EVENTS:
        writer = Writer(tmp_path / "p.sqlite")
        writer.put([event])
        writer.close()
    assert read_process(tmp_path / "p.sqlite").events == EVENTS


def test_an_empty_put_does_not_touch_the_disk(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    before = writer._db.total_changes
    writer.put()
    writer.put([], facts={}, sources={}, series=[])
    assert writer._db.total_changes == before
    writer.close()


def test_a_failed_batch_is_rolled_back(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    with pytest.raises(TypeError):
        writer.put(EVENTS, facts={"bad": object()})
    writer.close()
    assert read_process(tmp_path / "p.sqlite").events == ()


def test_a_recording_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put_facts({"schema": SCHEMA + 1, "torchtriage": "9.9"})
    writer.close()
    with pytest.raises(
        TriageError, match=r"has schema 2, .* reads up to 1; upgrade torchtriage, or read it with version 9\.9",
    ):
        read_process(tmp_path / "p.sqlite")


@pytest.mark.parametrize("statement", ["delete from facts", "update facts set value = '\"one\"'"])
def test_a_file_without_a_schema_number_is_refused(tmp_path: Path, statement: str) -> None:
    Writer(tmp_path / "p.sqlite").close()
    edit(tmp_path / "p.sqlite", statement)
    with pytest.raises(TriageError, match="has no schema number"):
        read_process(tmp_path / "p.sqlite")


def test_an_empty_file_is_distinguished_from_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "p.sqlite").touch()
    with pytest.raises(
        TriageError, match=r"p\.sqlite is empty: its process has just started, or was killed as it started",
    ):
        read_process(tmp_path / "p.sqlite")


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\x00" + b"\xff" * 200])
def test_a_file_that_is_not_a_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.sqlite").write_bytes(content)
    with pytest.raises(
        TriageError, match=r"cannot read .*p\.sqlite: .*; the file is damaged or not a recording of torchtriage",
    ):
        read_process(tmp_path / "p.sqlite")


@pytest.mark.parametrize("statement", ["update facts set value = '{'", "drop table events"])
def test_a_file_without_a_table_is_refused(tmp_path: Path, statement: str) -> None:
    Writer(tmp_path / "p.sqlite").close()
    edit(tmp_path / "p.sqlite", statement)
    with pytest.raises(TriageError, match=r"the file is damaged|it is not a recording"):
        read_process(tmp_path / "p.sqlite")


@pytest.mark.parametrize(("statement", "name"), [
    ("update facts set value = '{' where key = 'argv'", "argv"),
    ("update facts set value = x'ff' where key = 'argv'", "argv"),
    (f"update facts set value = '{'[' * 100_000}' where key = 'argv'", "argv"),
    ("update series set data = x'000000'", "series loss"),
    ("update series set data = 'abc'", "series loss"),
    ("update series set steps = x'0000c07f0000c07f', data = x'0000000000000000'", "series loss"),
    ("update sources set first_line = 'x'", "sources"),
])
def test_a_damaged_row_is_left_out_and_named(tmp_path: Path, statement: str, name: str) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(
        EVENTS, {"pid": 7, "argv": ["train.py"]}, {("a.py", 3): SOURCE},
        [Series(name="loss", steps=[1.0, 2.0], values=[0.5, 0.25])],
    )
    writer.close()
    whole = read_process(tmp_path / "p.sqlite")
    edit(tmp_path / "p.sqlite", statement)
    process = read_process(tmp_path / "p.sqlite")
    assert [one.name for one in process.damage] == [name]
    assert (process.events, process.program.pid) == (EVENTS, 7)
    assert (process.program.argv is None) == (name == "argv")
    assert (process.series == {}) == (name == "series loss")
    assert (process.sources == whole.sources) == (name != "sources")


def test_a_truncated_file_is_read_in_part_or_refused(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "p.sqlite")
    writer.put([Tap(name="x" * 500)] * 200)
    writer.close()
    whole = (tmp_path / "p.sqlite").read_bytes()
    for size in range(0, len(whole), 4096):
        (tmp_path / "cut.sqlite").write_bytes(whole[:size])
        try:
            events = read_process(tmp_path / "cut.sqlite").events
        except TriageError:     # any other error fails the test
            events = ()
        assert all(event == Tap(name="x" * 500) for event in events)
    assert len(read_process(tmp_path / "p.sqlite").events) == 200


def test_an_event_of_a_later_version_is_unparsed(tmp_path: Path) -> None:
    Writer(tmp_path / "p.sqlite").close()
    payload = json.dumps({"colour": "red"})
    edit(tmp_path / "p.sqlite", f"insert into events (kind, time, payload) values ('hologram', 3.0, '{payload}')")
    assert read_process(tmp_path / "p.sqlite").events == (Unparsed(origin="event hologram", text=payload, time=3.0),)


def refuse_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_on_network", lambda path: True)


def test_without_safe_wal_the_file_grows_elsewhere_and_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse_wal(monkeypatch)
    writer = Writer(tmp_path / "p.sqlite")
    local = writer._local
    assert local is not None
    assert read_process(tmp_path / "p.sqlite").events == ()
    writer.put(EVENTS)
    assert read_process(local).events == EVENTS
    monkeypatch.setattr(store, "COPY_SECONDS", -1.0)
    writer.put([Tap(name="later")])
    assert read_process(tmp_path / "p.sqlite").events == (*EVENTS, Tap(name="later"))
    writer.close()
    assert os.listdir(tmp_path) == ["p.sqlite"]
    assert not local.parent.exists()


def test_if_sqlite_refuses_wal_the_file_grows_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = store._connect
    # A database in memory answers "memory" when it is asked for WAL.
    monkeypatch.setattr(
        store, "_connect", lambda path: sqlite3.connect(":memory:") if path == tmp_path / "p.sqlite" else connect(path),
    )
    writer = Writer(tmp_path / "p.sqlite")
    assert writer._local is not None
    writer.put(EVENTS)
    writer.close()
    assert read_process(tmp_path / "p.sqlite").events == EVENTS


def test_the_copy_is_complete_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_wal(monkeypatch)
    writer = Writer(tmp_path / "p.sqlite")
    writer.put(EVENTS)
    writer.close()
    assert read_process(tmp_path / "p.sqlite").events == EVENTS


def test_a_network_that_is_down_for_a_while_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_wal(monkeypatch)
    monkeypatch.setattr(store, "COPY_SECONDS", -1.0)
    folder = tmp_path / "mount"
    folder.mkdir()
    writer = Writer(folder / "p.sqlite")
    folder.rename(tmp_path / "away")
    writer.put(EVENTS)
    (tmp_path / "away").rename(folder)
    writer.close()
    assert read_process(folder / "p.sqlite").events == EVENTS


@pytest.mark.parametrize(("mounts", "expected"), [
    ("/dev/sda / ext4 rw 0 0\n", False),
    ("/dev/sda / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n", True),
    ("server:/ / nfs rw 0 0\n/dev/sda /data ext4 rw 0 0\n", False),
    ("/dev/sda / ext4 rw 0 0\nserver:/x /dat nfs rw 0 0\n", False),
    ("/dev/sda / ext4 rw 0 0\nx /data fuse.sshfs rw 0 0\n", True),
    ("/dev/sda / ext4 rw 0 0\nserver:/x /data\\040set nfs rw 0 0\n", False),
    ("", False),
])
def test_the_nearest_mount_decides(monkeypatch: pytest.MonkeyPatch, mounts: str, expected: bool) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, errors: mounts)
    assert store._on_network(Path("/data/out.triage/p.sqlite")) is expected
