"""A folder is read as one run, with its processes and its launcher; one damaged file does not hide the others."""

import os
import platform
import time
from pathlib import Path
from typing import Any

import pytest

from torchtriage.errors import TriageError
from torchtriage.recording.events import Event, Recompile, Tap
from torchtriage.recording.reader import LAUNCHER_FILE, STUDY_FILE, is_recording, read_recording
from torchtriage.recording.store import Writer


def write(folder: Path, name: str, *events: Event, **facts: Any) -> None:
    folder.mkdir(exist_ok=True)
    writer = Writer(folder / name)
    writer.put(events, facts=facts)
    writer.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out.triage"


def test_processes_are_ordered_by_rank_and_start(folder: Path) -> None:
    for name, rank, start in [("a", 10, 1.0), ("b", 2, 1.0), ("c", None, 9.0), ("d", 2, 0.5), ("e", None, None)]:
        write(folder, f"{name}.sqlite", Tap(name=name), rank=rank, start=start)
    recording = read_recording(folder)
    assert [tap.name for tap in recording.of(Tap)] == ["e", "c", "d", "b", "a"]
    assert [process.rank for process in recording.processes] == [None, None, 2, 2, 10]
    assert (recording.origin, recording.path) == ("recording", str(folder))


def test_the_facts_of_the_launcher_are_those_of_the_run(folder: Path) -> None:
    write(folder, LAUNCHER_FILE, argv=["train.py"], exit_status=3, end=5.0)
    write(folder, "box-1.sqlite", Recompile(), pid=1)
    recording = read_recording(folder)
    assert len(recording.processes) == 1
    assert (recording.facts["exit_status"], recording.facts["end"], recording.facts["argv"]) == (3, 5.0, ["train.py"])


@pytest.mark.parametrize("joined", [True, False])
def test_whether_any_process_joined_is_a_fact(folder: Path, joined: bool) -> None:
    write(folder, LAUNCHER_FILE)
    (folder / "run_id").write_text("x")
    if joined:
        (folder / "joined").touch()
    recording = read_recording(folder)
    assert recording.processes == ()
    assert recording.facts["joined"] is joined


def test_an_empty_folder_holds_no_recording(folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(TriageError, match=r"out\.triage holds no recording; make one with: torchtriage run SCRIPT\.py"):
        read_recording(folder)


@pytest.mark.parametrize(
    ("name", "expected"), [("run_id", True), ("box-1.sqlite", True), ("notes.txt", False), (None, False)],
)
def test_a_folder_with_an_id_or_a_file_of_a_process_is_a_recording(
    folder: Path, name: str | None, expected: bool,
) -> None:
    folder.mkdir()
    if name:
        (folder / name).touch()
    assert is_recording(folder) is expected


def test_a_file_is_not_a_recording(tmp_path: Path) -> None:
    (tmp_path / "x.triage").touch()
    assert not is_recording(tmp_path / "x.triage")
    assert not is_recording(tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_the_other_files_are_read_if_one_is_damaged(folder: Path, content: bytes) -> None:
    write(folder, LAUNCHER_FILE, exit_status=137)
    write(folder, "rank0-box-1.sqlite", Recompile(), rank=0)
    (folder / "rank1-box-2.sqlite").write_bytes(content)
    recording = read_recording(folder)
    assert [process.rank for process in recording.processes] == [0]
    assert recording.facts["exit_status"] == 137
    [problem] = recording.facts["unreadable_files"]
    assert "rank1-box-2.sqlite" in problem


def test_the_processes_are_read_if_the_launcher_file_is_damaged(folder: Path) -> None:
    write(folder, "box-1.sqlite", Recompile())
    (folder / LAUNCHER_FILE).write_bytes(b"garbage")
    recording = read_recording(folder)
    assert len(recording.processes) == 1
    assert LAUNCHER_FILE in recording.facts["unreadable_files"][0]


def test_if_no_process_can_be_read_the_error_says_why(folder: Path) -> None:
    write(folder, LAUNCHER_FILE)
    (folder / "box-1.sqlite").write_bytes(b"garbage")
    with pytest.raises(TriageError, match=r"cannot read .*box-1\.sqlite"):
        read_recording(folder)


def test_a_recording_of_a_newer_version_is_refused(folder: Path) -> None:
    write(folder, LAUNCHER_FILE, schema=2)
    write(folder, "box-1.sqlite", schema=2)
    with pytest.raises(TriageError, match="upgrade torchtriage"):
        read_recording(folder)


def test_a_shape_study_is_read_as_plain_data(folder: Path) -> None:
    write(folder, "box-1.sqlite", Recompile())
    assert "shapes" not in read_recording(folder).facts
    (folder / STUDY_FILE).write_text('{"schema": 1, "unit": "step"}')
    assert read_recording(folder).facts["shapes"] == {"schema": 1, "unit": "step"}


@pytest.mark.parametrize("content", [b"", b'{"schema": 1', b"\xff\xfe", b"[" * 100_000])
def test_the_recording_is_read_if_the_shape_study_is_damaged(folder: Path, content: bytes) -> None:
    write(folder, "box-1.sqlite", Recompile())
    (folder / STUDY_FILE).write_bytes(content)
    recording = read_recording(folder)
    assert len(recording.processes) == 1
    assert "shapes" not in recording.facts
    assert recording.facts["shapes_problem"].startswith("cannot read shapes.json: ")


def test_a_folder_in_place_of_a_shape_study_is_reported(folder: Path) -> None:
    write(folder, "box-1.sqlite", Recompile())
    (folder / STUDY_FILE).mkdir()
    assert "cannot read shapes.json" in read_recording(folder).facts["shapes_problem"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says when a process began")
def test_whether_a_process_still_runs_is_known_on_its_own_machine(folder: Path) -> None:
    here = platform.node()
    for name, facts in {
        "this": {"pid": os.getpid(), "start": time.time(), "host": here},
        "ended": {"pid": os.getpid(), "start": time.time(), "host": here, "end": time.time()},
        "an earlier one of this number": {"pid": os.getpid(), "start": 1.0, "host": here},
        "none": {"pid": 2**22 + 1, "start": time.time(), "host": here},
        "elsewhere": {"pid": os.getpid(), "start": time.time(), "host": here + "x"},
    }.items():
        write(folder, f"{name}.sqlite", argv=[name], **facts)
    assert {p.program.argv[0]: p.recorder.is_running for p in read_recording(folder).processes if p.program.argv} == {
        "this": True, "ended": None, "an earlier one of this number": False, "none": False, "elsewhere": None,
    }
