"""Whether runs can take turns, with the reason against it."""

from pathlib import Path
from typing import Any

import pytest

from torchtriage.proof.runs.process import RunOutcome
from torchtriage.recording.events import CompileCall
from torchtriage.recording.recording import Process, Recording
from torchtriage.shapes.runs import alone
from torchtriage.shapes.runs.alone import free_memory, why_alone

GIB = 2 ** 30


def why(
    monkeypatch: pytest.MonkeyPatch,
    *,
    files: tuple[str, ...] = (),
    cpu_seconds: float = 9.0,
    num_processes: int = 1,
    num_runs: int = 4,
    **facts: Any,
) -> str:
    monkeypatch.setattr(alone, "free_memory", lambda: 8 * GIB)
    process = Process(events=(CompileCall(target="f"),), facts={"peak_memory_bytes": GIB, **facts})
    first = RunOutcome(
        recording=Path(), exit_status=0, seconds=10.0, was_stopped=False, stdout=Path(), stderr=Path(),
        cpu_seconds=cpu_seconds,
    )
    return why_alone(first, Recording(processes=(process,) * num_processes), files, num_runs)


def test_a_program_that_only_works_may(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why(monkeypatch) == ""


def test_a_busy_machine_is_not_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why(monkeypatch, cpu_seconds=2.0, processor_wait_seconds=7.0) == ""


@pytest.mark.parametrize(("given", "told"), [
    ({"files": ("log.txt",)}, "it writes files"),
    ({"num_processes": 2}, "several processes"),
    ({"peak_device_memory_bytes": 1}, "accelerator"),
    ({"num_runs": 6}, "6 copies may not fit in memory"),
    ({"peak_memory_bytes": None}, "may not fit in memory"),
    ({"cpu_seconds": 2.0}, "waits for something other"),
])
def test_the_reason_against_turns_is_given(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], told: str) -> None:
    assert told in why(monkeypatch, **given)


def test_no_turns_without_a_way_to_pause_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("signal.SIGSTOP")
    assert "cannot pause and continue a process" in why(monkeypatch)


@pytest.mark.parametrize(("limit", "expected"), [("max", 4096 * 1024), ("3000000", 2000000), ("9000000", 4096 * 1024)])
def test_free_memory_is_the_least_of_machine_and_confinement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: int,
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:    4096 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(alone, "_CGROUP", tmp_path)
    monkeypatch.setattr(alone, "_MEMINFO", tmp_path / "meminfo")
    assert free_memory() == expected


def test_a_system_that_does_not_tell_has_no_known_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "_MEMINFO", tmp_path / "none")
    assert free_memory() is None
