"""What a trial says about units that were run, and about those that were not."""

from typing import Any

import pytest

from tests.unit.shapes.trial_samples import trial
from torchtriage.proof.runs.turns import Pauses
from torchtriage.recording.events import CompileEnd, CompileStart, LimitHit, Recompile
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.shapes.runs.trial import (
    Lane,
    Span,
    Stretch,
    Trial,
    call_lanes,
    common_span,
    main_process,
    overridden,
    read_trial,
    step_lane,
    unit_of,
)


def test_a_total_beyond_the_run_uses_the_rate_of_the_second_half() -> None:
    one = Trial(policy="p", round=1, functions={"f": Lane.of([5.0, 1.0, 1.0, 2.0])})
    span = common_span([one])
    assert span.total(one, 2) == 6.0
    assert span.total(one, 4) == 9.0
    assert span.total(one, 6) == 9.0 + 2 * 1.5


def test_startup_and_rate_add_up_to_the_total() -> None:
    one = trial("p", startup=3.0, rate=0.5, units=20)
    span = common_span([one])
    assert span.rate(one) == pytest.approx(0.5)
    assert span.startup(one) == pytest.approx(3.0)


def test_steady_units_have_no_compile_and_are_from_the_second_half_if_possible() -> None:
    assert Lane.of([9, 1, 3, 5], [1, 0, 0, 0]).steady(4) == (2, 8)
    assert Lane.of([9, 1, 3, 5], [1, 0, 1, 1]).steady(4) == (1, 1)
    assert Lane.of([9, 1], [1, 1]).steady(2) == (0, 0)


def test_a_compile_in_the_second_half_is_late() -> None:
    assert Lane.of([1, 1, 1, 1], [1, 0, 0, 1]).compiles_late(4)
    assert not Lane.of([1, 1, 1, 1], [1, 1, 0, 0]).compiles_late(4)
    assert not Lane.of([1, 1, 1, 1], [1, 0, 0, 1]).compiles_late(3)


def test_merged_units_can_be_divided() -> None:
    lane = Lane((Stretch(4, 8.0, 1), Stretch(4, 4.0, 0)))
    assert lane.num_units == 8
    assert lane.total(2) == 4.0
    assert lane.total(6) == 10.0


def test_trials_are_compared_over_their_common_units_of_each_lane() -> None:
    a = Trial(policy="a", round=1, functions={"f": Lane.of([1] * 10), "g": Lane.of([2] * 3)})
    b = Trial(policy="b", round=1, functions={"g": Lane.of([2] * 5), "f": Lane.of([1] * 7)})
    c = Trial(policy="c", round=1, functions={"f": Lane.of([1] * 8), "g": Lane.of([2] * 3), "h": Lane.of([9])})
    span = common_span([a, b, c])
    assert span.lanes == {"f": 7, "g": 3}
    assert span.total(b, span.num_units) == 13
    assert span.total(c, 5) == 6.5      # half of each lane
    assert span.rate(a) == pytest.approx(1.3)
    assert span.steady(a) == pytest.approx(1.3)


def test_a_function_that_one_trial_never_called_is_not_compared() -> None:
    a = Trial(policy="a", round=1, functions={"f": Lane.of([1]), "g": Lane.of([1])})
    assert common_span([a, Trial(policy="b", round=1, functions={"f": Lane.of([1])})]).lanes == {"f": 1}


def test_steps_are_the_units_if_every_trial_has_enough_of_them() -> None:
    with_steps = Trial(policy="a", round=1, steps=Lane.of([1] * 5), functions={"f": Lane.of([1])})
    without = Trial(policy="a", round=2, steps=Lane.of([1] * 4), functions={"f": Lane.of([1])})
    assert unit_of([with_steps]) == "step"
    assert unit_of([with_steps, without]) == "call"
    assert common_span([with_steps]).lanes == {"steps": 5}


def test_without_a_trial_there_are_no_common_units() -> None:
    assert common_span([]) == Span(unit="step", lanes={})


def function(target: str, num_calls: int, line: int = 6) -> dict[str, Any]:
    return {"path": "/w/train.py", "line": line, "target": target, "num_calls": num_calls}


def series(name: str, values: list[float], first: int = 1, stride: int = 1) -> Series:
    return Series(name=name, steps=[first + i * stride for i in range(len(values))], values=values)


def process(facts: dict[str, Any], *all_series: Series, events: tuple[Any, ...] = ()) -> Process:
    return Process(facts=facts, series={s.name: s for s in all_series}, events=events)


def test_calls_of_each_function_are_a_lane() -> None:
    one = process(
        {"functions": [function("f", 3), function("g", 2, line=9)]},
        series("call_seconds/0", [5.0, 1.0, 1.0]),
        series("call_compiles/0", [1, 0, 0]),
        series("call_seconds/1", [2.0, 2.0]),
    )
    lanes = call_lanes(one)
    assert list(lanes) == ["f (train.py:6)", "g (train.py:9)"]
    assert lanes["f (train.py:6)"].stretches == (Stretch(1, 5.0, 1), Stretch(1, 1.0, 0), Stretch(1, 1.0, 0))
    assert lanes["g (train.py:9)"].total(2) == 4.0
    assert read_trial(Recording(processes=(one,)), "p", 1).sites["g (train.py:9)"] == "/w/train.py:9"


def test_merged_calls_keep_their_sum_and_their_compiles() -> None:
    one = process(
        {"functions": [function("f", 7)]},
        series("call_seconds/0", [3.0, 1.0], stride=4), series("call_compiles/0", [0.5, 0.0], stride=4),
    )
    assert call_lanes(one)["f (train.py:6)"].stretches == (Stretch(4, 12.0, 2.0), Stretch(3, 3.0, 0.0))


def test_the_first_step_lasts_from_the_first_compiled_call_to_its_end() -> None:
    one = process(
        {"first_call_time": 100.0, "first_step_time": 104.0, "num_steps": 4},
        series("step_seconds", [2.0, 1.0, 1.0], first=2),
        events=(CompileStart(step=None), CompileStart(step=1), CompileStart(step=1)),
    )
    lane = step_lane(one)
    assert lane is not None
    assert lane.stretches == (Stretch(1, 4.0, 1), Stretch(1, 2.0, 2), Stretch(1, 1.0, 0), Stretch(1, 1.0, 0))


def test_a_step_before_the_first_compiled_call_is_left_out() -> None:
    one = process(
        {"first_call_time": 105.0, "first_step_time": 104.0, "num_steps": 3},
        series("step_seconds", [2.0, 1.0], first=2),
    )
    lane = step_lane(one)
    assert lane is not None
    assert lane.num_units == 2


@pytest.mark.parametrize("facts", [{}, {"num_steps": 5}, {"first_call_time": 1.0}])
def test_a_program_without_steps_or_compiled_calls_has_no_steps(facts: dict[str, Any]) -> None:
    assert step_lane(process(facts, series("step_seconds", [1.0], first=2))) is None


def test_counts_come_from_all_processes() -> None:
    one = process(
        {
            "functions": [function("f", 1)],
            "first_call_seconds": 1.5,
            "peak_memory_bytes": 7,
            "eager_calls": {"hits": 0, "misses": 4, "recompiles": 0, "eager": 4},
        },
        events=(
            CompileStart(),
            CompileEnd(time=12.0, seconds=2.0),
            Recompile(),
            CompileStart(),
            CompileEnd(time=20.0, seconds=1.0),
            LimitHit(path="f.py", line=1, function="f"),
        ),
    )
    trial = read_trial(Recording(processes=(one,)), "p", 2, seconds=9.0, was_stopped=True)
    assert (trial.num_compiles, trial.num_recompiles, trial.num_eager_calls, trial.hit_limit) == (2, 1, 4, True)
    assert (trial.compile_seconds, trial.first_call_seconds, trial.peak_memory_bytes) == (3.0, 1.5, 7)
    assert (trial.round, trial.seconds, trial.was_stopped) == (2, 9.0, True)


def test_device_memory_takes_precedence_over_process_memory() -> None:
    one = process({"peak_memory_bytes": 7, "peak_device_memory_bytes": 3})
    assert read_trial(Recording(processes=(one,)), "p", 1).peak_memory_bytes == 3


def test_the_main_process_has_the_most_calls() -> None:
    busy = process({"functions": [function("f", 9)]})
    assert main_process(Recording(processes=(process({}), busy, process({"functions": [function("f", 2)]})))) is busy


def test_a_recording_without_a_process_has_no_units() -> None:
    trial = read_trial(Recording(processes=()), "p", 1)
    assert (trial.num_units("call"), trial.num_units("step")) == (0, 0)


def test_an_overridden_call_is_shown_as_a_change() -> None:
    one = {"path": "/w/train.py", "line": 31, "target": "model", "written": "false", "forced": "true"}
    assert overridden(process({"overrides": [one, one]})) == ("train.py:31 model: dynamic=False -> True",)
    assert overridden(process({"overrides": [{**one, "written": "shapes_spec"}]})) == (
        "train.py:31 model: shapes_spec -> True",
    )


def test_compile_time_excludes_pauses() -> None:
    ends = [
        CompileEnd(time=at, seconds=seconds) for at, seconds in ((10.0, 6.0), (9.0, 4.0), (20.0, 1.0), (30.0, None))
    ]
    recording = Recording(processes=(process({}, events=tuple(ends)),))
    assert read_trial(recording, "p", 1).compile_seconds == 7.0  # the second one lies within the first
    assert read_trial(
        recording, "p", 1, Pauses([(3.0, 5.0), (6.0, 8.5), (19.5, 25.0)])
    ).compile_seconds == pytest.approx(6 - 3.5 + 0.5)
