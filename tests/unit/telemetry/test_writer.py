"""The background thread: a slow or failing sink never slows or stops the training, and is reported."""

import threading
import time
import warnings
from collections.abc import Iterable

import pytest

from torchtriage.errors import TriageError
from torchtriage.recording.events import Anomaly, Event
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks.jsonl import JsonlSink
from torchtriage.telemetry.writer import SinkThread, TelemetryWriter, checked_sinks


def observation_at(step: int = 1, **values: float) -> Observation:
    return Observation(step=step, time=0.0, values=values)


class MemorySink:
    """Keeps its items in memory; can be made to hang or to fail."""

    name = "memory"

    def __init__(self, fails: int = 0) -> None:
        self.items: list[Observation | Event] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_closed = False
        self._fails = fails

    def write(self, observation: Observation) -> None:
        self.gate.wait(60)
        if self._fails:
            self._fails -= 1
            raise OSError("disk full")
        self.items.append(observation)

    def event(self, event: Event) -> None:
        self.items.append(event)

    def close(self) -> None:
        self.is_closed = True


class ListSource:
    """A source with these observations to give."""

    def __init__(self, *observations: Observation) -> None:
        self.left = list(observations)

    def observations(self, wait: bool = False) -> Iterable[Observation]:
        while self.left:
            yield self.left.pop(0)


def test_sink_receives_items_in_order_before_close_returns() -> None:
    sink = MemorySink()
    thread = SinkThread(sink)
    for step in range(100):
        thread.put(observation_at(step))
    thread.close()
    assert [item.step for item in sink.items] == list(range(100))
    assert sink.is_closed
    assert not thread.error


def test_slow_sink_blocks_nothing_and_its_drops_are_counted() -> None:
    sink = MemorySink()
    sink.gate.clear()
    thread = SinkThread(sink, max_queue=10)
    began = time.perf_counter()
    for step in range(1000):
        thread.put(observation_at(step))
    with pytest.warns(RuntimeWarning, match="memory sink failed: still busy after 0.1 s"):
        thread.close(0.1)
    assert time.perf_counter() - began < 30.0       # as long as the sink would take for half an observation
    assert thread.num_dropped >= 989
    sink.gate.set()


def test_failing_sink_is_reported_once_and_continues_if_it_recovers() -> None:
    sink = MemorySink(fails=2)
    thread = SinkThread(sink)
    sink.gate.clear()
    for step in range(5):
        thread.put(observation_at(step))
    sink.gate.set()
    with pytest.warns(RuntimeWarning, match="OSError: disk full") as warned:
        thread.close()
    assert len(warned) == 1
    assert [item.step for item in sink.items] == [2, 3, 4]
    assert (thread.num_failed, thread.num_dropped) == (2, 0)


def test_sink_that_keeps_failing_is_no_longer_called() -> None:
    sink = MemorySink(fails=100)
    thread = SinkThread(sink)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(50):
            thread.put(observation_at(step))
        thread.close()
    assert thread.num_failed == 3
    assert thread.num_dropped == 47


def test_observations_reach_the_rules_and_every_sink() -> None:
    direct, other, events = MemorySink(), MemorySink(), list[Event]()
    called = []
    writer = TelemetryWriter(
        direct_sinks=[direct], sinks=[other], emit=events.append, on_anomaly=lambda: called.append("anomaly")
    )
    writer.add(ListSource(observation_at(1, loss=1.0), observation_at(2, loss=float("nan"))))
    writer.start()
    writer.close()
    for sink in (direct, other):
        assert [type(item).__name__ for item in sink.items] == ["Observation", "Observation", "Anomaly"]
    assert [event.code for event in events if isinstance(event, Anomaly)] == ["TT401"]
    assert called == ["anomaly"]
    assert writer.facts()["num_observed"] == 2
    assert writer.facts()["num_anomalies"] == 1


def test_filling_ring_wakes_the_reader_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchtriage.telemetry.writer.POLL_SECONDS", 600.0)
    writer, source, has_come = TelemetryWriter(), ListSource(), threading.Event()
    writer.add(source, lambda *_: has_come.set())
    writer.start()
    source.left.append(observation_at(1, loss=1.0))
    writer.start(is_filling=True)
    assert has_come.wait(60)
    writer.close()


def test_removed_source_is_read_to_its_end() -> None:
    direct = MemorySink()
    writer = TelemetryWriter(direct_sinks=[direct])
    source = ListSource(observation_at(1), observation_at(2))
    writer.add(source)
    writer.remove(source)
    writer.flush()
    source.left.append(observation_at(3))
    writer.close()
    assert [item.step for item in direct.items] == [1, 2]


def test_internal_failure_is_recorded_and_other_sources_continue() -> None:
    class Broken:
        def observations(self, wait: bool = False) -> Iterable[Observation]:
            raise ZeroDivisionError("oops")

    direct = MemorySink()
    writer = TelemetryWriter(direct_sinks=[direct])
    writer.add(Broken())
    writer.add(ListSource(observation_at(1)))
    writer.close()
    assert "ZeroDivisionError: oops" in str(writer.facts()["error"])
    assert len(direct.items) == 1


def test_sink_is_an_object_or_a_text(tmp_path: object) -> None:
    (made,) = checked_sinks([f"jsonl:{tmp_path}/run.jsonl"])
    assert isinstance(made, JsonlSink)
    made.close()
    with pytest.raises(TriageError, match="sink must be one of jsonl, tensorboard, wandb, trackio, stdout"):
        checked_sinks(["csv:x"])
    with pytest.raises(TriageError, match="needs a target, got 'jsonl'; write jsonl:NAME"):
        checked_sinks(["jsonl"])
    with pytest.raises(TriageError, match="a sink must have the methods write, event and close"):
        checked_sinks([3])
