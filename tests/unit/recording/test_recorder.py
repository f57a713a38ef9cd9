"""The recorder never raises into the program, never grows without bound, and reports the events it lost."""

import _thread
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchtriage import errors
from torchtriage.recording import recorder as module
from torchtriage.recording.events import Event, GraphBreak, Recompile, StackEntry, Tap
from torchtriage.recording.recorder import Recorder
from torchtriage.recording.recording import Process, Series
from torchtriage.recording.store import Writer, read_process

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")     # the recorder has a thread
EVENT = Recompile(path="unknown", reasons=("k == 2",))


def facts() -> dict[str, Any]:
    return {"host": "box", "rank": None, "argv": ["train.py"]}


class Watched:
    """An observer that reports the facts that the test sets."""

    def __init__(self, **facts: Any) -> None:
        self.facts_to_report = facts
        self.last: list[Event] = []

    def facts(self) -> dict[str, Any]:
        return self.facts_to_report

    def series(self) -> list[Series]:
        return [Series(name="step_seconds", steps=[2], values=[0.5])]

    def last_events(self) -> list[Event]:
        return self.last


class Broken(Watched):
    def facts(self) -> dict[str, Any]:
        raise RuntimeError("no facts today")

    series = last_events = facts  # type: ignore[assignment]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out.triage"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(module, "SERIES_SECONDS", 0.01)
    for patience in ("CLOSE_SECONDS", "FORK_SECONDS"):      # a busy machine may starve the thread for seconds
        monkeypatch.setattr(module, patience, 60.0)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sqlite"))


def the_process(folder: Path) -> Process:
    [path] = files(folder)
    return read_process(path)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def failing(times: float = float("inf")) -> type[Writer]:
    """A Writer whose `put` of events fails the first few times."""
    left = [times]

    class FailingWriter(Writer):
        def put(self, events: Any = (), *args: Any, **kwargs: Any) -> None:
            if events and left[0] > 0:
                left[0] -= 1
                raise OSError(28, "No space left on device")
            super().put(events, *args, **kwargs)

    return FailingWriter


def test_an_event_that_is_added_can_be_read(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(Tap(name="trace"))
    recorder.add(EVENT)
    recorder.close()
    process = the_process(folder)
    assert process.events == (Tap(name="trace"), EVENT)
    assert process.facts["argv"] == ["train.py"]
    assert process.facts["end"] <= time.time()
    assert process.facts["recorder_error"] == ""


@pytest.mark.parametrize(("rank", "name"), [(None, "box-{}.sqlite"), (3, "rank3-box-{}.sqlite")])
def test_the_file_is_named_by_rank_host_and_process(folder: Path, rank: int | None, name: str) -> None:
    recorder = Recorder(folder, lambda: {**facts(), "rank": rank})
    recorder.add(EVENT)
    recorder.close()
    assert [path.name for path in files(folder)] == [name.format(os.getpid())]


def test_a_process_without_an_event_leaves_no_file(folder: Path) -> None:
    Recorder(folder, facts).close()
    assert not folder.exists()


def test_taps_alone_do_not_make_a_file(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(Tap(name="trace"))
    recorder.follow(Watched(num_steps=None))
    recorder.close()
    assert not folder.exists()


def test_the_main_process_leaves_a_file_even_without_an_event(folder: Path) -> None:
    recorder = Recorder(folder, facts, always=True)
    recorder.add(Tap(name="trace"))
    recorder.follow(Watched(num_steps=None))
    recorder.close()
    assert the_process(folder).events == (Tap(name="trace"),)


def test_a_process_that_steps_leaves_a_file(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.follow(Watched(num_steps=7))
    recorder.start()
    recorder.start()
    recorder.close()
    assert the_process(folder).num_steps == 7


def test_a_sync_before_exec_writes_an_end_and_recording_may_continue(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    recorder.sync()
    assert the_process(folder).events == (EVENT,)
    assert the_process(folder).facts["end"]
    recorder.add(GraphBreak())      # exec failed, and the program continues
    recorder.close()
    assert the_process(folder).events == (EVENT, GraphBreak())


def test_a_process_without_an_event_leaves_no_file_before_exec(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(Tap(name="trace"))
    recorder.sync()
    assert not folder.exists()


def test_a_reused_process_id_gets_a_separate_file(folder: Path) -> None:
    for _ in range(3):
        recorder = Recorder(folder, facts)
        recorder.add(EVENT)
        recorder.close()
    assert [path.name for path in files(folder)] == sorted(
        f"box-{os.getpid()}{tail}.sqlite" for tail in ("", "-2", "-3")
    )
    assert [read_process(path).events for path in files(folder)] == [(EVENT,)] * 3


def test_events_reach_the_disk_while_the_program_runs(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    until(lambda: recorder._num_written)
    process = the_process(folder)
    assert process.events == (EVENT,)
    assert process.facts.get("end") is None
    recorder.close()


def test_facts_series_and_last_events_of_a_source_are_written(folder: Path) -> None:
    watched = Watched(num_steps=3, eager_calls=None)
    watched.last = [GraphBreak(type="late")]
    recorder = Recorder(folder, facts)
    recorder.follow(watched)
    recorder.add(EVENT)
    recorder.close()
    process = the_process(folder)
    assert process.events == (EVENT, GraphBreak(type="late"))
    assert process.num_steps == 3
    assert list(process.series["step_seconds"].values) == [0.5]


def test_the_source_around_each_place_is_written_once(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("class Policy:\n    def forward(self, x):\n        return x\n")
    recorder = Recorder(folder, facts)
    for _ in range(3):
        recorder.add(Recompile(path=str(path), line=2, stack=(StackEntry(path=str(path), line=3, function="forward"),)))
    recorder.close()
    sources = the_process(folder).sources
    assert {place: source.qualname for place, source in sources.items()} == {
        (str(path), 2): "Policy.forward", (str(path), 3): "Policy.forward",
    }


def test_steps_reach_the_disk_without_an_event(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are counted in a fact, and a kill must lose no more of them than of the events."""
    monkeypatch.setattr(module, "SERIES_SECONDS", 1000.0)
    watched = Watched(num_steps=1)
    recorder = Recorder(folder, facts)
    recorder.follow(watched)
    recorder.start()
    for number in (2, 3):
        watched.facts_to_report = {"num_steps": number}
        until(lambda: recorder._last_facts.get("num_steps") == number)      # noqa: B023 - called at once
        assert the_process(folder).num_steps == number
    recorder.close()


def test_a_closed_descriptor_is_never_written(folder: Path, tmp_path: Path) -> None:
    """A program that closes all descriptors, as a daemon does, opens its own files with the same numbers."""
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    recorder.sync()
    assert recorder._writer is not None
    numbers = list(recorder._writer._descriptors)
    assert len(numbers) == 3
    with recorder._lock:        # the thread would notice in between
        own = []
        for number in numbers:
            path = tmp_path / f"own-{number}"
            path.write_bytes(b"x" * 10_000)
            descriptor = os.open(path, os.O_RDWR)
            os.dup2(descriptor, number)
            os.close(descriptor)
            own.append(path)
    recorder.add(GraphBreak())
    recorder.close()
    assert [path.read_bytes() for path in own] == [b"x" * 10_000] * 3
    for number in numbers:
        os.close(number)        # they are still open, so this does not raise
    process = the_process(folder)
    assert process.events == (EVENT,)
    assert "closed the open file" in process.facts["recorder_error"]


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_folder_that_is_deleted_or_moved_is_reported_on_stderr(
    is_moved: bool, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(errors, "_stderr_at_start", errors._stderr())
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    recorder.sync()
    if is_moved:
        folder.rename(folder.with_name("elsewhere.triage"))
    else:
        while folder.exists():  # the recorder's thread may be writing into it at this moment
            shutil.rmtree(folder, ignore_errors=True)
    recorder.add(GraphBreak())
    recorder.close()
    assert "was deleted or moved while the program ran" in capfd.readouterr().err
    assert not folder.exists()
    if is_moved:
        assert the_process(folder.with_name("elsewhere.triage")).events == (EVENT,)


def test_without_room_for_the_file_the_error_is_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(errors, "_stderr_at_start", errors._stderr())
    (tmp_path / "file").touch()
    recorder = Recorder(tmp_path / "file" / "out.triage", facts)
    recorder.add(EVENT)
    recorder.close()
    assert "could not be finished: NotADirectoryError" in capfd.readouterr().err


def test_nothing_is_written_to_another_file_with_the_number_of_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(errors, "_stderr_at_start", errors._stderr())
    saved = os.dup(2)
    try:
        with open(tmp_path / "data", "wb") as file:
            os.dup2(file.fileno(), 2)
        errors.tell("lost")
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert (tmp_path / "data").read_bytes() == b""


def test_an_idle_run_does_not_touch_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[Any] = []
    real = Writer.put

    def put(self: Writer, events: Any = (), facts: Any = None, sources: Any = None, series: Any = ()) -> None:
        writes.append((events, facts, sources, series))
        real(self, events, facts, sources, series)

    monkeypatch.setattr(Writer, "put", put)
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    until(lambda: len(writes) > 5)
    recorder.close()
    assert [any(write) for write in writes[:6]] == [True, False, False, False, False, False]


def test_events_beyond_a_full_queue_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUE", 5)
    recorder = Recorder(folder, facts)
    monkeypatch.setattr(recorder, "_start_thread", lambda: None)     # the disk is stuck
    for _ in range(8):
        recorder.add(EVENT)
    recorder.add(GraphBreak())
    recorder.close()
    process = the_process(folder)
    assert len(process.events) == 5
    assert process.facts["dropped"] == {"recompile": 3, "graph_break": 1}


def test_events_beyond_the_bound_are_only_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 3)
    recorder = Recorder(folder, facts)
    for _ in range(3):
        recorder.add(EVENT)
    until(lambda: recorder._num_written == 3)
    for _ in range(4):
        recorder.add(EVENT)
    recorder.close()
    process = the_process(folder)
    assert len(process.events) == 3
    assert process.facts["dropped"] == {"recompile": 4}


def test_a_second_close_does_nothing(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    recorder.close()
    end = the_process(folder).facts["end"]
    recorder.close()
    recorder.add(EVENT)
    recorder.close()
    assert the_process(folder).facts["end"] == end
    assert the_process(folder).events == (EVENT,)


def test_events_of_many_threads_all_arrive(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    threads = [threading.Thread(target=lambda: [recorder.add(EVENT) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert len(the_process(folder).events) == 1600


def test_a_failing_disk_never_raises_and_the_error_is_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Writer", failing())
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    recorder.close()
    process = the_process(folder)
    assert process.facts["recorder_error"] == "OSError: [Errno 28] No space left on device"
    assert process.facts["dropped"] == {"recompile": 1}


def test_a_write_that_fails_once_loses_no_fact_and_counts_its_events(
    folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "Writer", failing(times=1))
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    until(lambda: recorder._error)
    recorder.add(GraphBreak())
    recorder.close()
    process = the_process(folder)
    assert process.events == (GraphBreak(),)
    assert process.facts["argv"] == ["train.py"]
    assert process.facts["dropped"] == {"recompile": 1}
    assert "No space left" in process.facts["recorder_error"]


def test_a_folder_that_cannot_be_made_never_raises(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    recorder = Recorder(blocked / "out.triage", facts)
    recorder.add(EVENT)
    until(lambda: recorder._error)
    assert "Error" in recorder._error
    blocked.unlink()
    recorder.close()
    assert the_process(blocked / "out.triage").events == (EVENT,)


def test_a_source_that_fails_never_raises(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.follow(Broken())
    recorder.close()
    recorder = Recorder(folder, facts)
    recorder.follow(Broken())
    recorder.add(EVENT)
    recorder.close()
    assert recorder._error == "RuntimeError: no facts today"


def test_events_are_written_even_if_no_thread_can_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    recorder = Recorder(folder, facts)
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", start)
        recorder.add(EVENT)
    assert recorder._thread is None
    recorder.close()
    assert the_process(folder).events == (EVENT,)


def in_child(function: Callable[[], None]) -> int:
    """The exit status of a forked child that calls the function."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_and_its_parent_have_separate_files(folder: Path) -> None:
    recorder = Recorder(folder, lambda: {"host": "box", "pid": os.getpid()})
    recorder.add(Tap(name="trace"))
    recorder.add(EVENT)
    until(lambda: recorder._num_written == 2)

    def child() -> None:
        recorder.add(GraphBreak(type="in the child"))
        recorder.close()

    assert in_child(child) == 0
    recorder.add(GraphBreak(type="in the parent"))
    recorder.close()
    by_pid = {read_process(path).facts["pid"]: read_process(path).events for path in files(folder)}
    assert by_pid.pop(os.getpid()) == (Tap(name="trace"), EVENT, GraphBreak(type="in the parent"))
    assert list(by_pid.values()) == [(Tap(name="trace"), GraphBreak(type="in the child"))]


def test_a_forked_child_without_an_event_leaves_no_file(folder: Path) -> None:
    """A data loader's worker inherits all that its parent has seen; it is not its own."""
    recorder = Recorder(folder, facts, always=True)
    recorder.follow(Watched(num_steps=7))
    recorder.add(EVENT)
    assert in_child(recorder.close) == 0
    recorder.close()
    assert len(files(folder)) == 1


def test_a_forked_child_that_steps_leaves_a_file(folder: Path) -> None:
    recorder = Recorder(folder, facts, always=True)
    recorder.follow(Watched(num_steps=7))

    def child() -> None:
        recorder.start()
        recorder.close()

    assert in_child(child) == 0
    recorder.close()
    assert len(files(folder)) == 2


def test_a_fork_waits_for_a_write_in_progress(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutex, is_writing = threading.Lock(), threading.Event()     # as SQLite has them, below Python

    class Locking(Writer):
        def put(self, *args: Any, **kwargs: Any) -> None:
            with mutex:
                is_writing.set()
                time.sleep(0.2)
                super().put(*args, **kwargs)

    monkeypatch.setattr(module, "Writer", Locking)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 10.0)      # if the fork did not wait, the child would for so long
    recorder = Recorder(folder, lambda: {"host": "box", "pid": os.getpid()})
    recorder.add(EVENT)
    assert is_writing.wait(60)

    def child() -> None:
        recorder.add(GraphBreak(type="in the child"))
        recorder.close()

    assert in_child(child) == 0
    until(lambda: recorder._num_written == 1)
    recorder.close()
    events = {read_process(path).events for path in files(folder)}
    assert events == {(EVENT,), (GraphBreak(type="in the child"),)}


def test_a_fork_does_not_wait_forever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORK_SECONDS", 0.01)
    recorder = Recorder(folder, facts)
    with recorder._lock:
        assert in_child(lambda: None) == 0
    recorder.add(EVENT)
    recorder.close()
    assert the_process(folder).events == (EVENT,)


def test_a_recorder_of_another_process_is_not_closed(folder: Path) -> None:
    recorder = Recorder(folder, facts)
    recorder.add(EVENT)
    until(lambda: recorder._num_written)
    recorder._pid = -1      # as in a child that did not run our hook
    recorder.close()
    assert the_process(folder).facts.get("end") is None
    recorder._pid = os.getpid()
    recorder.close()
    assert the_process(folder).facts["end"]
