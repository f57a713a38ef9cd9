"""The profiler around a loop writes a bounded number of traces, and reports a loop that is too short."""

import gzip
import json
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.telemetry import profiler as module
from torchtriage.telemetry.profiler import activities, training_profiler
from torchtriage.text import counted


def run(folder: Path, steps: int, **settings: Any) -> tuple[module.TrainingProfiler, list[warnings.WarningMessage]]:
    layer = torch.nn.Linear(8, 8)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with training_profiler(folder, **settings) as profiler:
            for _ in range(steps):
                layer(torch.ones(4, 8)).sum().backward()
                profiler.step()
    return profiler, [w for w in warned if "training_profiler" in str(w.message)]


def events(trace: Path) -> list[dict[str, Any]]:
    with gzip.open(trace) as file:
        return json.load(file)["traceEvents"]


def steps_in(trace: Path) -> list[str]:
    return sorted({e["name"] for e in events(trace) if e["name"].startswith("ProfilerStep")})


def test_the_default_schedule_keeps_three_of_five_steps_in_one_trace(tmp_path: Path) -> None:
    profiler, warned = run(tmp_path / "deep" / "traces", steps=9)
    assert profiler.traces == list((tmp_path / "deep" / "traces").iterdir())
    assert [steps_in(trace) for trace in profiler.traces] == [["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]]
    assert profiler.traces[0].name.endswith(".pt.trace.json.gz")
    assert not warned


def test_every_cycle_writes_one_trace_and_then_it_ends(tmp_path: Path) -> None:
    with training_profiler(tmp_path, wait=0, warmup=1, active=2, repeat=3) as profiler:
        for _ in range(30):
            torch.ones(2).sum()
            profiler.step()
        assert profiler._profile is None    # its events are released
    assert len(list(tmp_path.iterdir())) == len(profiler.traces) == 3


@pytest.mark.parametrize(("steps", "num_recorded", "written"), [(0, 0, 0), (1, 0, 0), (3, 1, 1), (4, 2, 1)])
def test_loop_that_is_too_short_is_reported(tmp_path: Path, steps: int, num_recorded: int, written: int) -> None:
    profiler, warned = run(tmp_path, steps)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    message = str(warned[0].message)
    assert (
        f"counted {counted(steps, 'step')}, its schedule needs 5: (wait 1 + warmup 1 + active 3) x repeat 1" in message
    )
    assert (
        f"the last cycle recorded {num_recorded} of 3 steps, {written} of 1 traces were written. Call step()" in message
    )
    assert "Call step() after each step, run longer" in message
    assert len(profiler.traces) == written


def test_updates_that_are_rare_fit_when_the_schedule_is_set_for_them(tmp_path: Path) -> None:
    profiler, warned = run(tmp_path, steps=2, wait=0, warmup=1, active=1)
    assert len(profiler.traces) == 1
    assert not warned


def test_shapes_memory_and_stacks_are_recorded_on_request(tmp_path: Path) -> None:
    plain, _ = run(tmp_path / "plain", steps=5)
    full, _ = run(tmp_path / "full", steps=5, record_shapes=True, profile_memory=True, with_stack=True)

    def has(trace: Path) -> dict[str, bool]:
        seen = events(trace)
        return {
            "shapes": any("Input Dims" in e.get("args", {}) for e in seen),
            "memory": any(e["name"] == "[memory]" for e in seen),
            "stack": any(e.get("cat") == "python_function" for e in seen),
        }

    assert has(plain.traces[0]) == {"shapes": False, "memory": False, "stack": False}
    assert has(full.traces[0]) == {"shapes": True, "memory": True, "stack": True}


def test_disabled_it_makes_no_profiler_no_folder_and_no_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.profiler, "profile", lambda **_: pytest.fail("a profiler was made"))
    profiler, warned = run(tmp_path / "none", steps=3, enabled=False)
    assert not (tmp_path / "none").exists()
    assert not warned
    assert profiler.traces == []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        profiler.step()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1000


def test_an_error_of_the_loop_passes_through_and_the_trace_is_kept(tmp_path: Path) -> None:
    profiler = training_profiler(tmp_path)

    def loop() -> None:
        with profiler:
            for step in range(4):
                1 / (3 - step)
                profiler.step()

    with warnings.catch_warnings():
        warnings.simplefilter("error")      # one failure is enough to read
        with pytest.raises(ZeroDivisionError):
            loop()
    assert [steps_in(trace) for trace in profiler.traces] == [["ProfilerStep#2", "ProfilerStep#3"]]


def test_a_trace_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", full)
    profiler, warned = run(tmp_path, steps=6)
    assert profiler.traces == []
    assert "No space left on device; the training continues" in str(warned[0].message)


def test_beyond_the_byte_limit_no_trace_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    profiler, warned = run(tmp_path, steps=9, wait=0, warmup=1, active=2, repeat=3)
    assert len(profiler.traces) == 1
    assert "and writes no further trace" in str(warned[0].message)


@pytest.mark.parametrize(("settings", "words"), [
    ({"active": 0}, "active must be at least 1, got 0"),
    ({"wait": -1}, "wait must be at least 0, got -1"),
    ({"repeat": 0}, "repeat must be at least 1, got 0; 0 would never stop writing traces"),
    ({"active": 500, "repeat": 3}, "active x repeat must be at most 1000 steps, got 500 x 3"),
])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_schedule_without_bounds_is_refused_on_or_off(settings: dict[str, Any], words: str, enabled: bool) -> None:
    with pytest.raises(ValueError, match=words):
        training_profiler(enabled=enabled, **settings)


def test_every_activity_of_this_machine_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(activities()) == set(torch.profiler.supported_activities())
    kinds = torch.profiler.ProfilerActivity
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {kinds.XPU, kinds.CPU, kinds.CUDA, kinds.MTIA})
    assert set(activities()) == {kinds.CPU, kinds.CUDA, kinds.XPU, kinds.MTIA}


def test_missing_mps_activity_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    profiler = training_profiler(tmp_path)
    with pytest.warns(UserWarning, match=r"no activity for MPS: .* use torch.mps.profiler.profile\(\)") as warned:
        profiler.__enter__()
    profiler._stop()
    assert [w.filename for w in warned] == [__file__]
