"""The background thread of telemetry: samples pass the rules, then the sinks; no failure reaches the training."""

import collections
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from torchtriage.background import BackgroundThread, own_threads
from torchtriage.errors import TriageError
from torchtriage.recording.events import Event
from torchtriage.telemetry.anomaly import AnomalyDetector
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks import Sink, make_sink
from torchtriage.text import counted

POLL_SECONDS = 0.5          # the longest delay of an escalation; a poll costs the program about 30 us, with cold caches
CLOSE_SECONDS = 5.0
MAX_QUEUE = 1024            # observations and events that may wait for one sink
MAX_FAILURES = 3            # consecutive failures after which a sink is no longer called


class SinkThread:
    """A sink behind a bounded queue. Items that do not fit are dropped and counted; the first failure is reported."""

    def __init__(self, sink: Sink, max_queue: int = MAX_QUEUE) -> None:
        self.sink = sink
        self.error = ""
        self.num_dropped = 0
        self.num_failed = 0
        self._max = max_queue
        self._queue: collections.deque[Observation | Event] = collections.deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._is_dead = False
        self._thread: threading.Thread | None = None

    def put(self, item: Observation | Event) -> None:
        if self._is_dead or len(self._queue) >= self._max:
            self.num_dropped += 1
            return
        self._queue.append(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=f"torchtriage {self.sink.name}", daemon=True)
            self._thread.start()
        self._wake.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the queued items, as far as the sink manages in time."""
        self._is_closing = True
        self._wake.set()
        if self._thread is None:
            self._try(self.sink.close)
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._warn(f"still busy after {seconds:g} s, {counted(len(self._queue), 'observation')} not written")
            self.num_dropped += len(self._queue)

    def _loop(self) -> None:
        own_threads.add(threading.get_ident())
        try:
            self._write_all()
        finally:
            own_threads.discard(threading.get_ident())      # a thread of the program may get the same identifier

    def _write_all(self) -> None:
        failures = 0
        while not self._is_closing or self._queue:
            while self._queue and not self._is_dead:
                item = self._queue.popleft()
                write: Callable[[Any], None] = self.sink.write if isinstance(item, Observation) else self.sink.event
                failures = 0 if self._try(write, item) else failures + 1
                if failures >= MAX_FAILURES:
                    self._is_dead = True
                    self.num_dropped += len(self._queue)
                    self._queue.clear()
            if not self._is_closing:
                self._wake.wait()
                self._wake.clear()
        self._try(self.sink.close)

    def _try(self, function: Callable[..., None], *args: object) -> bool:
        try:
            function(*args)
        except Exception as error:      # a sink may be user code, and a failing log must not end the training
            self.num_failed += 1
            self._warn(f"{type(error).__name__}: {error}")
            return False
        return True

    def _warn(self, problem: str) -> None:
        if not self.error:
            self.error = problem
            text = f"torchtriage: the {self.sink.name} sink failed: {problem}; the training continues without it"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class ObservationSource(Protocol):
    """Provides observations, such as the RowReader of a track."""

    def observations(self, wait: bool = False) -> Iterable[Observation]: ...


class TelemetryWriter:
    """Reads all sources on one thread.

    `direct_sinks` (the curves of the recording) are called on that thread; each of `sinks` has its own thread.
    """

    def __init__(
        self, direct_sinks: Sequence[Sink] = (), sinks: Sequence[Sink] = (), detector: AnomalyDetector | None = None,
        emit: Callable[[Event], None] = lambda _: None, on_anomaly: Callable[[], object] = lambda: None,
        max_queue: int = MAX_QUEUE,
    ) -> None:
        self.detector = detector or AnomalyDetector()
        self.sinks = [SinkThread(sink, max_queue) for sink in sinks]
        self.num_observed = 0
        self.num_anomalies = 0
        self.error = ""
        self._direct_sinks = list(direct_sinks)
        self._emit = emit
        self._on_anomaly = on_anomaly
        self._sources: dict[ObservationSource, Callable[[float, int], None]] = {}
        self._leaving: list[ObservationSource] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: BackgroundThread | None = None
        self._is_closing = False

    def add(self, source: ObservationSource, on_work: Callable[[float, int], None] = lambda *_: None) -> None:
        """`on_work(seconds, number)` receives the processor time that reading a number of its observations took."""
        self._sources[source] = on_work

    def remove(self, source: ObservationSource) -> None:
        """Remove the source once its remaining observations have been read."""
        self._leaving.append(source)

    def start(self, is_filling: bool = False) -> None:
        """Called with every row. The first call starts the thread; `is_filling` wakes it to empty the ring."""
        if is_filling:
            self._wake.set()
        if self._thread is None and not self._is_closing:
            self._thread = BackgroundThread(self._loop)

    def send(self, event: Event) -> None:
        """Pass an event to the recording and to every sink."""
        self._emit(event)
        for sink in self._direct_sinks:
            sink.event(event)
        for thread in self.sinks:
            thread.put(event)

    def flush(self, wait: bool = True) -> None:
        """Read the rows that are in the rings."""
        with self._lock:
            self._drain(wait)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)
        if self._lock.acquire(timeout=seconds):
            try:
                self._drain(wait=True)
            finally:
                self._lock.release()
        for sink in self._direct_sinks:
            sink.close()
        for thread in self.sinks:
            thread.close(seconds)

    def facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"num_observed": self.num_observed, "num_anomalies": self.num_anomalies}
        problems = {}
        for thread in self.sinks:
            if thread.error or thread.num_dropped:
                problems[thread.sink.name] = {
                    "error": thread.error, "dropped": thread.num_dropped, "failed": thread.num_failed,
                }
        if problems:
            facts["sinks"] = problems
        if self.error:
            facts["error"] = self.error
        return facts

    def _loop(self) -> None:
        while not self._is_closing:
            with self._lock:
                self._drain(wait=False)
            if self._wake.wait(POLL_SECONDS) and not self._is_closing:
                self._wake.clear()

    def _drain(self, wait: bool) -> None:
        leaving, self._leaving = self._leaving, []
        for source, on_work in list(self._sources.items()):
            began, num_before = time.thread_time(), self.num_observed
            try:
                for observation in source.observations(wait or source in leaving):
                    self._process(observation)
            except Exception as error:
                self.error = self.error or f"{type(error).__name__}: {error}"
            if self.num_observed > num_before:
                on_work(time.thread_time() - began, self.num_observed - num_before)
        for source in leaving:
            del self._sources[source]

    def _process(self, observation: Observation) -> None:
        report = self.detector.check_all(
            metrics=observation.values, tensors=observation.tensors(), step=observation.step,
        )
        for sink in self._direct_sinks:
            sink.write(observation)
        for thread in self.sinks:
            thread.put(observation)
        for event in report.events(observation.time):
            self.num_anomalies += 1
            self.send(event)
        if report.started:
            self._on_anomaly()
        self.num_observed += 1


def checked_sinks(sinks: Iterable[object]) -> list[Sink]:
    """The sinks; a text such as `jsonl:run.jsonl` is replaced with the sink that it describes."""
    checked: list[Sink] = []
    for sink in sinks:
        if isinstance(sink, str):
            checked.append(make_sink(sink))
        elif all(callable(getattr(sink, name, None)) for name in ("write", "event", "close")):
            checked.append(sink)  # type: ignore[arg-type]
        else:
            raise TriageError(
                "a sink must have the methods write, event and close, or be a text such as 'jsonl:FILE'; "
                f"got {type(sink).__name__}"
            )
    return checked
