"""torchtriage.step(), else the first optimizer, counts steps; their times take bounded memory."""

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.capture.taps import steps
from torchtriage.capture.taps.steps import MAX_POINTS, StepCounter, watch_optimizers


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


@pytest.fixture
def profiler() -> ModuleType:
    """torch.autograd.profiler as far as an optimizer's step needs it."""
    class record_function:  # noqa: N801 - torch's name
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None: ...

        def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...

    module = ModuleType("profiler")
    module.record_function = record_function  # type: ignore[attr-defined]
    return module


class Optimizer:
    def __init__(self, profiler: ModuleType) -> None:
        self.block = profiler.record_function

    def step(self, fail: bool = False) -> None:
        with self.block(f"Optimizer.step#{type(self).__name__}.step"):
            if fail:
                raise ValueError("the closure failed")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> SimpleNamespace:
    """A counter that torchtriage.step() reaches, in a program whose torch is not compiling."""
    state = SimpleNamespace(counter=StepCounter(), compiling=False)
    torch = SimpleNamespace(compiler=SimpleNamespace(is_compiling=lambda: state.compiling))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setattr(steps, "active", [state.counter])
    return state


def marked(times: list[float]) -> StepCounter:
    counter = StepCounter()
    counter.marks = times
    return counter


def test_a_program_without_steps_has_none() -> None:
    counter = StepCounter()
    assert counter.current() is None
    assert counter.facts() == {"num_steps": None, "step_source": None, "steps_of_other_optimizers": []}
    assert list(counter.series().values) == []


def test_an_explicit_step_counts(program: SimpleNamespace, clock: Clock) -> None:
    for _ in range(3):
        steps.step()
    assert program.counter.current() == 3
    assert program.counter.facts()["step_source"] == "torchtriage.step()"


def test_a_step_inside_a_compiled_function_is_ignored(program: SimpleNamespace) -> None:
    program.compiling = True
    steps.step()
    assert program.counter.current() is None


def test_an_unobserved_step_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "active", [])
    monkeypatch.setitem(sys.modules, "torch", None)     # importing it would fail
    steps.step()


def test_every_active_counter_counts_a_step(program: SimpleNamespace) -> None:
    other = StepCounter()
    steps.active.append(other)
    steps.step()
    assert (program.counter.current(), other.current()) == (1, 1)


def test_the_first_optimizer_that_stepped_is_the_step(profiler: ModuleType, clock: Clock) -> None:
    counter = StepCounter()
    watch_optimizers(counter, profiler)
    policy, value = Optimizer(profiler), Optimizer(profiler)
    for optimizer in (policy, value, value, policy, value):
        optimizer.step()
    assert counter.current() == 2
    assert counter.facts() == {"num_steps": 2, "step_source": "optimizer", "steps_of_other_optimizers": [3]}


def test_an_explicit_step_takes_precedence_over_the_optimizer(
    profiler: ModuleType, program: SimpleNamespace, clock: Clock,
) -> None:
    watch_optimizers(program.counter, profiler)
    optimizer = Optimizer(profiler)
    for _ in range(4):
        optimizer.step()
    steps.step()
    optimizer.step()
    assert program.counter.current() == 1
    assert program.counter.facts()["step_source"] == "torchtriage.step()"


def test_other_blocks_and_steps_that_fail_do_not_count(profiler: ModuleType) -> None:
    counter = StepCounter()
    watch_optimizers(counter, profiler)
    with profiler.record_function("forward"):
        pass
    with pytest.raises(ValueError, match="the closure failed"):
        Optimizer(profiler).step(fail=True)
    assert counter.current() is None


def test_watching_can_be_undone(profiler: ModuleType) -> None:
    before = profiler.record_function.__exit__
    counter = StepCounter()
    undo = watch_optimizers(counter, profiler)
    assert undo is not None
    undo()
    assert profiler.record_function.__exit__ is before


def test_a_torch_without_record_function_gives_none() -> None:
    assert watch_optimizers(StepCounter(), ModuleType("profiler")) is None


def test_the_time_of_a_step_starts_at_the_previous_step(program: SimpleNamespace, clock: Clock) -> None:
    for seconds in (0.0, 0.5, 0.25, 1.0):
        clock.now += seconds
        steps.step()
    series = program.counter.series()
    assert (series.name, list(series.steps), list(series.values)) == ("step_seconds", [2, 3, 4], [0.5, 0.25, 1.0])


def test_only_the_steps_that_count_are_timed(profiler: ModuleType, program: SimpleNamespace, clock: Clock) -> None:
    watch_optimizers(program.counter, profiler)
    policy, value = Optimizer(profiler), Optimizer(profiler)
    for optimizer in (policy, value, policy):
        clock.now += 1.0
        optimizer.step()
    assert list(program.counter.series().values) == [2.0]
    for _ in range(2):
        clock.now += 4.0
        policy.step()
        clock.now += 4.0
        steps.step()
    assert list(program.counter.series().values)[-1] == 8.0


def test_the_series_grows_between_two_calls(clock: Clock) -> None:
    counter = marked([0.0, 1.0])
    assert list(counter.series().values) == [1.0]
    assert list(counter.series().values) == [1.0]
    counter.marks.append(3.0)
    assert list(counter.series().values) == [1.0, 2.0]


def total_seconds(counter: StepCounter, num_steps: int) -> float:
    """What the series says the steps took in all: each point stands for the steps up to the next."""
    series = counter.series()
    ends = [*series.steps[1:], num_steps + 1]
    return sum(value * (end - start) for start, end, value in zip(series.steps, ends, series.values, strict=True))


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=150), st.integers(1, 40))
def test_a_long_run_keeps_a_bounded_series_with_the_same_total(seconds: list[float], chunk: int) -> None:
    now = 0.0
    with patch.object(steps, "MAX_POINTS", 16):
        counter = marked([0.0])
        for number, took in enumerate(seconds):
            now += took
            counter.marks.append(now)
            if number % chunk == 0:
                counter.series()
        assert total_seconds(counter, len(seconds) + 1) == pytest.approx(now)
        assert len(counter.series().values) <= 16


@pytest.mark.parametrize(
    "num_steps", [MAX_POINTS + 1, MAX_POINTS + 2, 2 * MAX_POINTS + 1, 2 * MAX_POINTS + 2, 5 * MAX_POINTS],
)
def test_every_point_is_the_mean_of_its_steps(num_steps: int) -> None:
    counter = marked([0.5 * number for number in range(num_steps)])
    series = counter.series()
    assert set(series.values) == {0.5}
    assert series.steps[0] == 2
    assert series.steps[-1] <= num_steps


def test_the_time_of_the_first_step_stays_the_same(program: SimpleNamespace, clock: Clock) -> None:
    assert program.counter.first_time() is None
    steps.step()
    clock.now += 5.0
    with patch.object(program.counter.clock, "since_epoch", lambda: 1000.0):
        steps.step()
        program.counter.series()
    clock.now += 7.0
    steps.step()
    program.counter.series()
    assert program.counter.first_time() == 995.0


def test_the_first_step_of_either_kind_calls_back(profiler: ModuleType, program: SimpleNamespace) -> None:
    announced: list[int] = []
    program.counter.on_first_step = lambda: announced.append(1)
    watch_optimizers(program.counter, profiler)
    for _ in range(3):
        Optimizer(profiler).step()
    assert len(announced) == 1
    program.counter.start_over()
    steps.step()
    steps.step()
    assert len(announced) == 2


def test_starting_over_resets_everything() -> None:
    counter = marked([0.0, 1.0])
    counter.series()
    counter.explicit, counter.first, counter.by_optimizer = 3, 7, {7: 2}
    counter.start_over()
    assert counter.facts() == StepCounter().facts()
    assert counter.first_time() is None
    assert list(counter.series().values) == []


def test_an_optimizer_that_is_made_again_goes_on_counting() -> None:
    parameter, other, counter = [0.0], [1.0], StepCounter()

    def made(first: list[float]) -> Any:
        return SimpleNamespace(param_groups=[{"params": [first]}])

    optimizers = [made(parameter) for _ in range(5)]
    counter.first = counter.count(optimizers[0])
    for optimizer in optimizers[1:]:
        counter.count(optimizer)
        counter.count(optimizer)
    assert counter.current() == 9
    assert counter.facts()["steps_of_other_optimizers"] == []
    critic = made(other)
    counter.count(critic)
    assert (counter.current(), counter.facts()["steps_of_other_optimizers"]) == (9, [1])
