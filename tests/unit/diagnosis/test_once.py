"""What several rules ask of a process is worked out once, and for that process only."""

from dataclasses import replace

from tests.unit.samples import a_process
from torchtriage.diagnosis.once import once
from torchtriage.recording.events import CompileEnd, CompileStart, Placed
from torchtriage.recording.recording import Process

asked: list[int] = []


@once
def num_events(process: Process) -> int:
    """How many."""
    asked.append(1)
    return len(process.events)


def test_a_process_answers_from_memory_and_another_asks_anew() -> None:
    asked.clear()
    process = a_process(CompileStart())
    assert [num_events(process), num_events(process), len(asked)] == [1, 1, 1]
    assert [num_events(replace(process, events=())), num_events(process), len(asked)] == [0, 1, 2]


def test_what_is_remembered_makes_no_difference_between_processes() -> None:
    process, other = a_process(CompileStart()), a_process(CompileStart())
    num_events(process)
    assert process == other
    assert repr(process) == repr(other)


def test_events_can_be_asked_for_by_kind_again_and_by_a_wider_kind() -> None:
    process = a_process(CompileStart(), CompileEnd())
    assert [len(list(process.of(kind))) for kind in (CompileEnd, CompileEnd, CompileStart, Placed)] == [1, 1, 1, 2]
