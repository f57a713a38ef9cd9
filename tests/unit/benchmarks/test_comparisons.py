"""Figures of comparisons come from complete processes, and count for both sides what both sides do."""

import json

import pytest

from benchmarks.ppo import Ended, Pace
from benchmarks.recall import Hits, recompile_pages


def training(steps: int, cpu_seconds: float, seconds: float) -> Ended:
    printed = json.dumps({"num_steps": steps})
    return Ended(
        seconds=seconds, cpu_seconds=cpu_seconds, peak_mb=0.0, stdout=f"a log line\n{printed}\n", stderr="", status=0
    )


def test_start_and_compiles_are_not_part_of_the_pace_of_a_training() -> None:
    pace = Pace.of(training(2_000, 8.0, 10.0), training(42_000, 12.0, 20.0))
    assert (pace.steps_per_cpu_second, pace.steps_per_second) == (10_000, 4_000)


def test_time_between_updates_lowers_the_pace_of_a_training() -> None:
    """Telemetry runs after the clock of the trainer stops; that of the process sees it."""
    with_telemetry = Pace.of(training(2_000, 8.1, 10.1), training(42_000, 14.1, 22.1))
    assert with_telemetry.steps_per_cpu_second == pytest.approx(40_000 / 6)


def test_pages_of_tlparse_count_as_recompiles_once_per_compile_id() -> None:
    refused = {"function": "f", "compile_id": "0/2"}  # at the recompile limit: announced, but not a recompile
    truth = {"recompiles": [{"function": "f", "compile_id": "0/1"}, refused], "n_recompiles": 1}
    assert recompile_pages(["0/1", "0/2"], truth) == Hits(found=1, true=1)
    assert recompile_pages(["3/1"], truth) == Hits(found=0, true=1, extra=1)
