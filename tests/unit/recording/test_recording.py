"""A process caches pure functions of itself and finds its events by kind."""

from dataclasses import replace

from tests.unit.samples import a_process
from torchtriage.recording.events import CompileEnd, CompileStart, Placed
from torchtriage.recording.recording import Process

calls: list[int] = []


def num_events(process: Process) -> int:
    """The number of events; each computation is counted in `calls`."""
    calls.append(1)
    return len(process.events)


def test_a_result_is_computed_once_per_process() -> None:
    calls.clear()
    process = a_process(CompileStart())
    assert [process.once(num_events), process.once(num_events), len(calls)] == [1, 1, 1]
    changed = replace(process, events=())
    assert [changed.once(num_events), process.once(num_events), len(calls)] == [0, 1, 2]


def test_cached_results_do_not_affect_equality() -> None:
    process, other = a_process(CompileStart()), a_process(CompileStart())
    process.once(num_events)
    assert process == other
    assert repr(process) == repr(other)


def test_events_are_found_by_kind_and_by_a_wider_kind() -> None:
    process = a_process(CompileStart(), CompileEnd())
    assert [len(list(process.of(kind))) for kind in (CompileEnd, CompileEnd, CompileStart, Placed)] == [1, 1, 1, 2]
