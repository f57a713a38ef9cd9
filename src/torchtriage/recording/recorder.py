"""The recorder of a process: writes its events on a separate thread, without raising or blocking a step."""

import collections
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torchtriage.background import BackgroundThread
from torchtriage.errors import tell
from torchtriage.files import replace_file
from torchtriage.recording.events import CompileCall, Event, Placed, Tap
from torchtriage.recording.recording import Series, Source
from torchtriage.recording.sources import source_around
from torchtriage.recording.store import ERROR_SUFFIX, FilesLostError, Writer

MAX_EVENTS = 200_000    # about 200 MB of recording; beyond this, events are only counted by kind
MAX_QUEUE = 20_000      # events that wait for the disk; a compile makes about ten
FLUSH_SECONDS = 0.25
SERIES_SECONDS = 2.0    # between writes of the series while there are no events
CLOSE_SECONDS = 5.0
FORK_SECONDS = 1.0      # the longest that a fork waits for a write in progress


class RecordingSource(Protocol):
    """Facts and series that a recorder asks for at each write, and events that it asks for once at the end."""

    def facts(self) -> Mapping[str, Any]: ...

    def series(self) -> Iterable[Series]: ...

    def last_events(self) -> Iterable[Event]: ...


current: "Recorder | None" = None      # of this process if it is observed; further sources call its `follow`


class Recorder:
    """Writes the file of one process. The file is created with the first event, so an idle process leaves none."""

    def __init__(self, folder: Path, facts: Callable[[], Mapping[str, Any]], always: bool = False) -> None:
        self._folder = folder
        self._facts = facts
        self._always = always
        self._has_news = always
        self._queue: collections.deque[Event] = collections.deque()
        self._taps: list[Tap] = []
        self._dropped: collections.Counter[str] = collections.Counter()
        self._places: set[tuple[str, int]] = set()
        self._num_written = 0
        self._last_facts: dict[str, Any] = {}
        self._writer: Writer | None = None
        self._path: Path | None = None      # of the file, also if it could not be made
        self._error = ""
        self._lost: FilesLostError | None = None
        self._is_told = False
        self._first_facts: Mapping[str, Any] = {}
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: BackgroundThread | None = None
        self._closing = False
        self._pid = os.getpid()
        self._sources: list[RecordingSource] = []
        self._forking: set[int] = set()     # threads that hold the lock while they fork
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork_in_parent, after_in_child=self._after_fork)

    def add(self, event: Event) -> None:
        """Queue an event; called on the program's threads, so it only appends."""
        if len(self._queue) >= MAX_QUEUE or self._num_written >= MAX_EVENTS:
            self._dropped[event.kind] += 1
            return
        self._queue.append(event)
        if isinstance(event, Tap):
            self._taps.append(event)
        else:
            self.start()

    def follow(self, source: RecordingSource) -> None:
        """Also write the facts, series and last events of this source."""
        self._sources.append(source)
        if self._always:
            self.start()

    def start(self) -> None:
        """Start to write, even without an event: a program that trains gets a file."""
        self._has_news = True
        if self._thread is None and not self._closing:
            self._start_thread()

    def close(self) -> None:
        """Write the remaining events; gives up after some seconds on a slow disk, so that the program can end."""
        if self._closing or self._pid != os.getpid():
            return
        self._closing = True
        if not self._has_news:
            return
        try:
            self._finish()
        except Exception as error:
            self._note(error)
            self._tell_error()

    def sync(self) -> None:
        """Write all queued events and the end of the process, because exec returns only if it fails."""
        if self._closing or not self._has_news or not self._lock.acquire(timeout=CLOSE_SECONDS):
            return
        try:
            self._flush({"end": time.time()})
        except Exception as error:
            self._note(error)
            self._tell_error()
        finally:
            self._lock.release()

    def _finish(self) -> None:
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        if not self._lock.acquire(timeout=CLOSE_SECONDS):
            raise TimeoutError(f"a write took longer than {CLOSE_SECONDS:g} s")
        try:
            try:
                for source in self._sources:
                    self._queue.extend(source.last_events())
                self._flush()
            except Exception as error:
                self._note(error)
            end = {"end": time.time(), "recorder_error": self._error, "dropped": dict(self._dropped)}
            self._flush(end, with_series=False)
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        finally:
            self._lock.release()

    def _tell_error(self) -> None:
        """Report that the end could not be written, on stderr if nowhere else."""
        if not self._write_error_file() and not self._is_told:
            self._is_told = True
            tell(f"the recording in {self._folder} could not be finished: {self._error}")

    def _write_error_file(self) -> bool:
        """Write the error to a separate file: on a full disk a few bytes often still fit where rows do not."""
        if self._path is None:
            return False
        try:
            replace_file(self._path.with_suffix(ERROR_SUFFIX), self._error.encode("utf-8", "replace"))
        except OSError:
            return False
        return True

    def _start_thread(self) -> None:
        try:
            self._thread = BackgroundThread(self._loop)
        except RuntimeError as error:   # no more threads, or the interpreter is ending; `close` writes the queue
            self._note(error)

    def _note(self, error: Exception) -> None:
        self._error = f"{type(error).__name__}: {error}"

    def _loop(self) -> None:
        """Steps are counted without an event, so the totals are compared with those on the disk at every turn."""
        series_written = float("-inf")
        while not self._closing:
            is_time = bool(self._queue) or time.monotonic() - series_written > SERIES_SECONDS
            with self._lock:
                try:
                    self._flush(with_series=is_time)
                except Exception as error:
                    self._note(error)
            if is_time:
                series_written = time.monotonic()
            self._wake.wait(FLUSH_SECONDS)

    def _flush(self, more: Mapping[str, Any] | None = None, with_series: bool = True) -> None:
        """Write the queue, all facts that have changed, `more` among them, and the series; raises if it cannot."""
        if self._lost is not None:
            raise self._lost
        facts: dict[str, Any] = {}
        series: list[Series] = []
        try:
            for source in self._sources:
                facts.update(source.facts())
                if with_series:
                    series.extend(source.series())
        except Exception as error:
            self._note(error)       # a source that fails must not keep the events from being written
        if self._dropped:
            facts["dropped"] = dict(self._dropped)
        if not self._last_facts:    # nothing has been written yet
            self._first_facts = self._first_facts or self._facts()
            facts = {**self._first_facts, **facts}
        if self._writer is None:
            self._writer = self._new_file(facts)
        self._write(self._writer, {**facts, **(more or {})}, series)

    def _new_file(self, facts: Mapping[str, Any]) -> Writer:
        self._folder.mkdir(parents=True, exist_ok=True)
        stem = f"{facts.get('host', 'host')}-{os.getpid()}"
        if facts.get("rank") is not None:
            stem = f"rank{facts['rank']}-{stem}"
        # Process ids are reused in a long run, and exec keeps its own. In one file, compile ids would get mixed up.
        path = self._folder / f"{stem}.sqlite"
        number = 1
        while os.path.lexists(path):
            number += 1
            path = self._folder / f"{stem}-{number}.sqlite"
        self._path = path
        return Writer(path)

    def _write(self, writer: Writer, facts: Mapping[str, Any], series: list[Series]) -> None:
        """Write the events, and those facts that changed since the last write: an idle run does not touch the disk."""
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        last = self._last_facts
        changed = {name: value for name, value in facts.items() if name not in last or last[name] != value}
        try:
            writer.check()
            writer.put(batch, facts=changed, sources=self._new_sources(batch), series=series)
        except Exception as error:
            self._dropped.update(event.kind for event in batch)
            if isinstance(error, FilesLostError):
                self._lost = error
                writer.abandon()
                self._note(error)
                self._write_error_file()
            raise
        self._last_facts.update(changed)
        self._num_written += len(batch)

    def _new_sources(self, batch: list[Event]) -> dict[tuple[str, int], Source]:
        sources: dict[tuple[str, int], Source] = {}
        for event in batch:
            if not isinstance(event, Placed):
                continue
            places = {(entry.path, entry.line) for entry in event.stack} | {(event.path, event.line or 0)}
            for path, line in places:
                if (path, line) not in self._places:
                    self._places.add((path, line))
                    source = source_around(path, line, with_class=isinstance(event, CompileCall))
                    if source is not None:
                        sources[path, line] = source
        return sources

    def _before_fork(self) -> None:
        """Wait for a write in progress: the child would inherit SQLite's locks, without the thread to release them."""
        if self._lock.acquire(timeout=FORK_SECONDS):
            self._forking.add(threading.get_ident())

    def _after_fork_in_parent(self) -> None:
        if threading.get_ident() in self._forking:
            self._forking.remove(threading.get_ident())
            self._lock.release()

    def _after_fork(self) -> None:
        """Begin again in the child: thread, lock and connection are the parent's. The first event makes a new file."""
        if self._writer is not None:
            self._writer.abandon()      # closing it here could truncate the log of the parent
        self._queue = collections.deque(self._taps)
        self._dropped.clear()
        self._places.clear()
        self._num_written = 0
        self._last_facts.clear()
        self._writer = self._path = None
        self._error = ""
        self._lost = None
        self._is_told = False
        self._first_facts = {}
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._forking.clear()
        self._thread = None
        self._closing = False
        self._always = False
        self._has_news = False
        self._pid = os.getpid()
