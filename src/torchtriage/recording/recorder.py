"""Takes events from a running program and writes them on a thread of its own; never raises, never blocks a step."""

import collections
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torchtriage.recording.events import Event, Placed, Tap
from torchtriage.recording.recording import Series, Source
from torchtriage.recording.sources import source_around
from torchtriage.recording.store import ERROR_SUFFIX, Writer

MAX_EVENTS = 200_000    # about 200 MB of recording; past this, events are counted by kind and no longer kept
MAX_QUEUE = 20_000      # events that wait for the disk; a compile makes about ten
FLUSH_SECONDS = 0.25
IDLE_SECONDS = 2.0      # between writes of the running totals while there are no events
CLOSE_SECONDS = 5.0
FORK_SECONDS = 1.0      # that a fork waits for a write in progress at most


class Observed(Protocol):
    """What a recorder asks for at each write, and once at the end."""

    def facts(self) -> Mapping[str, Any]: ...

    def series(self) -> Iterable[Series]: ...

    def last_events(self) -> Iterable[Event]: ...


current: "Recorder | None" = None      # of a process that is observed; whoever has more to say follows it
# Closing the parent's SQLite connection in a forked child could truncate the parent's log, so it is kept alive.
_left_with_parent: list[Writer] = []


class Recorder:
    """One process's way into the recording. The file is made with the first event, so an idle process leaves none."""

    def __init__(self, folder: Path, facts: Callable[[], Mapping[str, Any]], always: bool = False) -> None:
        self._folder = folder
        self._facts = facts
        self._always = always
        self._has_news = always
        self._queue: collections.deque[Event] = collections.deque()
        self._taps: list[Tap] = []
        self._dropped: collections.Counter[str] = collections.Counter()
        self._seen_places: set[tuple[str, int]] = set()
        self._num_written = 0
        self._last_facts: dict[str, Any] = {}
        self._writer: Writer | None = None
        self._error = ""
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._pid = os.getpid()
        self._observed: list[Observed] = []
        self._forking: set[int] = set()     # threads that hold the lock while they fork
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork_in_parent, after_in_child=self._after_fork)

    def add(self, event: Event) -> None:
        """Queue an event; called on the program's threads, so it does no more than append."""
        if len(self._queue) >= MAX_QUEUE or self._num_written >= MAX_EVENTS:
            self._dropped[event.kind] += 1
            return
        self._queue.append(event)
        if isinstance(event, Tap):
            self._taps.append(event)
        else:
            self.start()

    def follow(self, observed: Observed) -> None:
        """Also write what this source has to say beside its events."""
        self._observed.append(observed)
        if self._always:
            self.start()

    def start(self) -> None:
        """Begin to write, if need be without an event: a program that trains is worth a file."""
        self._has_news = True
        if self._thread is None and not self._closing:
            self._start_thread()

    def close(self) -> None:
        """Write what is left; a slow disk may take some seconds, then the program's end goes first."""
        if self._closing or self._pid != os.getpid():
            return
        self._closing = True
        try:
            if self._has_news:
                self._finish()
        except Exception as error:
            self._note(error)
            self._leave_word()

    def sync(self) -> None:
        """Write what there is, as if the process ended here: exec never comes back, unless it fails."""
        if self._closing or not self._has_news or not self._lock.acquire(timeout=CLOSE_SECONDS):
            return
        try:
            self._flush()
            if self._writer is not None:
                self._writer.put_facts({"end": time.time()})
        except Exception as error:
            self._note(error)
        finally:
            self._lock.release()

    def _finish(self) -> None:
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            try:
                for observed in self._observed:
                    self._queue.extend(observed.last_events())
                self._flush()
                if self._writer is not None:
                    self._writer.put_facts({"end": time.time(), "recorder_error": self._error, "dropped": dict(self._dropped)})
                    self._writer.close()
                    self._writer = None
            finally:
                self._lock.release()

    def _leave_word(self) -> None:
        """A full disk takes no more rows; a few bytes in a file of their own often still fit."""
        try:
            if self._writer is not None:
                self._writer.path.with_suffix(ERROR_SUFFIX).write_text(self._error, encoding="utf-8")
        except OSError:
            print(f"torchtriage: the recording could not be finished: {self._error}", file=sys.stderr)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._loop, name="torchtriage", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:   # no more threads, or the interpreter is ending; `close` writes what is queued
            self._note(error)
            return
        self._thread = thread

    def _note(self, error: Exception) -> None:
        self._error = f"{type(error).__name__}: {error}"

    def _loop(self) -> None:
        written = float("-inf")
        while not self._closing:
            if self._queue or time.monotonic() - written > IDLE_SECONDS:
                with self._lock:
                    self._flush()
                written = time.monotonic()
            self._wake.wait(FLUSH_SECONDS)

    def _flush(self) -> None:
        try:
            facts = {name: value for observed in self._observed for name, value in observed.facts().items()}
            series = [one for observed in self._observed for one in observed.series()]
            if self._dropped:
                facts["dropped"] = dict(self._dropped)
            if not self._last_facts:    # nothing is on the disk yet
                facts = {**self._facts(), **facts}
            if self._writer is None:
                self._writer = self._new_file(facts)
            self._write(self._writer, facts, series)
        except Exception as error:
            self._note(error)

    def _new_file(self, facts: Mapping[str, Any]) -> Writer:
        self._folder.mkdir(parents=True, exist_ok=True)
        rank = facts.get("rank")
        stem = f"{'' if rank is None else f'rank{rank}-'}{facts.get('host', 'host')}-{os.getpid()}"
        # Process ids come again in a long run, and exec keeps its own; compile ids would get mixed in one file.
        names = (f"{stem}{'' if number == 1 else f'-{number}'}.sqlite" for number in itertools.count(1))
        return Writer(next(path for name in names if not (path := self._folder / name).exists()))

    def _write(self, writer: Writer, facts: Mapping[str, Any], series: list[Series]) -> None:
        """Events, and only those facts that differ from the last write, so that an idle run does not touch the disk."""
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        changed = {k: v for k, v in facts.items() if k not in self._last_facts or self._last_facts[k] != v}
        try:
            writer.put(batch, facts=changed, sources=self._new_sources(batch), series=series)
        except Exception:
            self._dropped.update(event.kind for event in batch)
            raise
        self._last_facts.update(changed)
        self._num_written += len(batch)

    def _new_sources(self, batch: list[Event]) -> dict[tuple[str, int], Source]:
        found: dict[tuple[str, int], Source] = {}
        for event in batch:
            if not isinstance(event, Placed):
                continue
            for path, line in {(event.path, event.line or 0), *((e.path, e.line) for e in event.stack)}:
                if (path, line) not in self._seen_places:
                    self._seen_places.add((path, line))
                    source = source_around(path, line)
                    if source is not None:
                        found[path, line] = source
        return found

    def _before_fork(self) -> None:
        """A fork in the middle of a write would leave the child SQLite's own locks taken, and nobody there to give them back."""
        if self._lock.acquire(timeout=FORK_SECONDS):
            self._forking.add(threading.get_ident())

    def _after_fork_in_parent(self) -> None:
        if threading.get_ident() in self._forking:
            self._forking.remove(threading.get_ident())
            self._lock.release()

    def _after_fork(self) -> None:
        """The thread, the lock and the connection stayed with the parent; a child with events of its own makes its own file."""
        if self._writer is not None:
            _left_with_parent.append(self._writer)
        self._queue = collections.deque(self._taps)
        self._dropped.clear()
        self._seen_places.clear()
        self._num_written = 0
        self._last_facts.clear()
        self._writer = None
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._forking.clear()
        self._thread = None
        self._closing = False
        self._always = False
        self._has_news = False
        self._pid = os.getpid()
