"""The background: reads the rings, asks the rules, hands observations to the sinks; nothing here can slow or stop the training."""

import collections
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from torchtriage.errors import TriageError
from torchtriage.recording.events import Event
from torchtriage.telemetry.anomaly import AnomalyDetector
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks import Sink

POLL_SECONDS = 0.5          # an escalation is at most so late; each time costs the program some 30 us, its caches being cold for us
CLOSE_SECONDS = 5.0
MAX_QUEUE = 1024            # observations and events that wait for a sink
MAX_FAILURES = 3            # in a row; then the sink is left alone


class SinkThread:
    """A sink behind a bounded queue: what does not fit is dropped and counted, what fails is said once."""

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
        """Write what is queued, if the sink is done in time."""
        self._is_closing = True
        self._wake.set()
        if self._thread is None:
            self._try(self.sink.close)
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._say(f"still busy after {seconds:g} s, {len(self._queue)} observations were not written")
            self.num_dropped += len(self._queue)

    def _loop(self) -> None:
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
        except Exception as error:      # a sink is anybody's code, and the training is worth more than its log
            self.num_failed += 1
            self._say(f"{type(error).__name__}: {error}")
            return False
        return True

    def _say(self, what: str) -> None:
        if not self.error:
            self.error = what
            text = f"torchtriage: the {self.sink.name} sink failed: {what}; the training goes on without it"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class Source(Protocol):
    """What observations come from: a Track."""

    def observations(self, wait: bool = False) -> Iterable[Observation]: ...


class Writer:
    """One thread for all sources. `kept` takes observations on it (the curves of the recording); sinks have threads of their own."""

    def __init__(
        self, kept: Sequence[Sink] = (), sinks: Sequence[Sink] = (), detector: AnomalyDetector | None = None,
        emit: Callable[[Event], None] = lambda _: None, on_anomaly: Callable[[], object] = lambda: None,
        max_queue: int = MAX_QUEUE,
    ) -> None:
        self.detector = detector or AnomalyDetector()
        self.sinks = [SinkThread(sink, max_queue) for sink in sinks]
        self.num_observed = 0
        self.num_anomalies = 0
        self.error = ""
        self._kept = list(kept)
        self._emit = emit
        self._on_anomaly = on_anomaly
        self._sources: dict[Source, Callable[[float, int], None]] = {}
        self._leaving: list[Source] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def add(self, source: Source, on_work: Callable[[float, int], None] = lambda *_: None) -> None:
        """`on_work` is told what its observations took of the processor."""
        self._sources[source] = on_work

    def remove(self, source: Source) -> None:
        """After what it holds has been read."""
        self._leaving.append(source)

    def start(self, is_filling: bool = False) -> None:
        """Called with every observation; the first one starts the thread, one that finds its ring `is_filling` wakes it."""
        if is_filling:
            self._wake.set()
        if self._thread is None and not self._is_closing:
            thread = threading.Thread(target=self._loop, name="torchtriage telemetry", daemon=True)
            thread.start()
            self._thread = thread

    def tell(self, event: Event) -> None:
        """An event that is not an observation's."""
        self._emit(event)
        for kept in self._kept:
            kept.event(event)
        for sink in self.sinks:
            sink.put(event)

    def flush(self, wait: bool = True) -> None:
        """Take in what the rings hold."""
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
        for kept in self._kept:
            kept.close()
        for sink in self.sinks:
            sink.close(seconds)

    def facts(self) -> dict[str, object]:
        sick = [sink for sink in self.sinks if sink.error or sink.num_dropped]
        problems = {s.sink.name: {"error": s.error, "dropped": s.num_dropped, "failed": s.num_failed} for s in sick}
        return {
            "num_observed": self.num_observed, "num_anomalies": self.num_anomalies,
            **({"sinks": problems} if problems else {}), **({"error": self.error} if self.error else {}),
        }

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
                    self._take(observation)
            except Exception as error:
                self.error = self.error or f"{type(error).__name__}: {error}"
            if self.num_observed > num_before:
                on_work(time.thread_time() - began, self.num_observed - num_before)
        for source in leaving:
            del self._sources[source]

    def _take(self, observation: Observation) -> None:
        report = self.detector.check_all(metrics=observation.values, tensors=observation.tensors(), step=observation.step)
        for kept in self._kept:
            kept.write(observation)
        for sink in self.sinks:
            sink.put(observation)
        for event in report.events(observation.time):
            self.num_anomalies += 1
            self.tell(event)
        if report.started:
            self._on_anomaly()
        self.num_observed += 1


def checked_sinks(sinks: Iterable[object]) -> list[Sink]:
    """Sinks as given, or made from a text such as `jsonl:run.jsonl`."""
    from torchtriage.telemetry.sinks import make_sink

    found: list[Sink] = []
    for sink in sinks:
        if isinstance(sink, str):
            found.append(make_sink(sink))
        elif all(callable(getattr(sink, name, None)) for name in ("write", "event", "close")):
            found.append(sink)  # type: ignore[arg-type]
        else:
            raise TriageError(f"a sink has write, event and close, or is a text such as 'jsonl:FILE'; got {type(sink).__name__}")
    return found
