"""Steady state begins after the last first-time compile; a share is reported only where it means something."""

import pytest

from tests.unit.samples import a_process
from torchtriage.diagnosis.totals import recompile_share, steady_state, step_milliseconds
from torchtriage.findings.severity import MIN_STEADY_STEPS
from torchtriage.recording.events import CompileEnd, Recompile
from torchtriage.recording.recording import Process, Series


def an_end(compile_id: str | None, time: float, step: int | None = None, seconds: float | None = 1.0) -> CompileEnd:
    return CompileEnd(compile_id=compile_id, time=time, step=step, seconds=seconds)


def run(*events: CompileEnd, num_steps: int | None = 100, end: float | None = 200.0) -> Process:
    """First compiles until second 100, then (usually) 100 steps in 100 seconds."""
    return a_process(an_end("0/0", 50.0), an_end("1/0", 100.0), *events, start=0.0, end=end, num_steps=num_steps)


def test_steady_state_begins_after_the_last_first_time_compile() -> None:
    steady = steady_state(run(an_end("0/1", 150.0)))
    assert (steady.start, steady.end, steady.num_steps) == (100.0, 200.0, 100)
    assert steady.is_known


def test_a_late_first_compile_delays_steady_state() -> None:
    steady = steady_state(run(an_end("2/0", 150.0, step=60)))
    assert (steady.start, steady.first_step, steady.num_steps) == (150.0, 60, 40)


def test_a_compiled_autograd_id_is_a_first_compile_too() -> None:
    assert steady_state(run(an_end("!1/4/0", 150.0))).start == 150.0


def test_a_run_without_compiles_is_entirely_steady() -> None:
    steady = steady_state(a_process(start=10.0, end=60.0, num_steps=50))
    assert (steady.start, steady.end, steady.num_steps) == (10.0, 60.0, 50)


def test_a_run_without_an_end_lasts_until_its_last_event() -> None:
    assert steady_state(run(an_end("0/1", 170.0), end=None)).end == 170.0


@pytest.mark.parametrize(
    ("num_steps", "is_known"), [(MIN_STEADY_STEPS, True), (MIN_STEADY_STEPS - 1, False), (None, False)],
)
def test_steady_state_is_unknown_with_few_steps(num_steps: int | None, is_known: bool) -> None:
    assert steady_state(run(num_steps=num_steps)).is_known is is_known


def test_an_empty_process_has_no_steady_state() -> None:
    assert not steady_state(a_process()).is_known


STORM = [an_end(f"0/{n}", 100.0 + 10 * n, step=10 * n, seconds=2.0) for n in range(1, 10)]
IDS = [end.compile_id or "" for end in STORM]


def test_the_share_of_lasting_recompiles_is_their_part_of_steady_time() -> None:
    assert recompile_share(run(*STORM), IDS) == pytest.approx(18.0 / 100.0)
    assert recompile_share(run(*STORM), IDS[4:]) == pytest.approx(10.0 / 100.0)


def test_recompiles_before_steady_state_have_no_share() -> None:
    early = [an_end("0/1", 60.0, step=99, seconds=30.0)]
    assert recompile_share(run(*early), ["0/1"]) is None


def test_recompiles_that_stopped_have_no_share() -> None:
    """Their time is fixed, so a share would only show how long the run was."""
    assert recompile_share(run(*STORM), IDS[:5]) is None


@pytest.mark.parametrize("num_steps", [10, None])
def test_there_is_no_share_with_few_steps(num_steps: int | None) -> None:
    assert recompile_share(run(*STORM, num_steps=num_steps), IDS) is None


def test_recompiles_that_were_not_timed_have_no_share() -> None:
    assert recompile_share(run(an_end("0/1", 190.0, step=90, seconds=None)), ["0/1"]) is None
    assert recompile_share(a_process(Recompile(compile_id="0/1"), num_steps=100), ["0/1"]) is None


@pytest.mark.parametrize("length", [50, 5000])
def test_the_share_of_steady_recompiles_is_independent_of_run_length(length: int) -> None:
    storm = [an_end(f"0/{n}", 100.0 + n, step=n, seconds=0.1) for n in range(1, length)]
    share = recompile_share(run(*storm, num_steps=length, end=100.0 + length), [end.compile_id or "" for end in storm])
    assert share == pytest.approx(0.1, rel=0.05)


def timed_process(*values: float) -> Process:
    return a_process(
        series={"step_seconds": Series(name="step_seconds", steps=range(2, 2 + len(values)), values=values)}
    )


def test_the_step_time_is_the_median_so_compiles_do_not_count() -> None:
    assert step_milliseconds(timed_process(*[0.010] * 30, 5.0, 9.0)) == pytest.approx(10.0)


def test_there_is_no_step_time_with_few_steps() -> None:
    assert step_milliseconds(timed_process(*[0.01] * (MIN_STEADY_STEPS - 1))) is None
    assert step_milliseconds(timed_process(*[0.01] * MIN_STEADY_STEPS)) is not None
    assert step_milliseconds(a_process()) is None
