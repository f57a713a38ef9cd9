"""The history of a run: the processes that took part, the time of each event, the finding that it belongs to."""

from typing import Any

import pytest

from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.history.build import history as build_history
from torchtriage.diagnosis.totals import totals
from torchtriage.findings.history import History, Moment, MomentKind
from torchtriage.recording.events import (
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    FrameSkipped,
    GraphBreak,
    LimitHit,
    Recompile,
    StackEntry,
    Tap,
)
from torchtriage.recording.recording import Process, Recording, Series, Source

APP, LIB = "/app/policy.py", "/venv/lib/python3.11/site-packages/lib/net.py"
F: dict[str, Any] = {"path": APP, "line": 3, "function": "forward"}
SIZE = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"


def resume(line: int, function: str = "forward") -> dict[str, Any]:
    return {"path": APP, "line": line, "function": f"torch_dynamo_resume_in_{function}_at_{line}"}


def a_compile(compile_id: str, at: float, seconds: float = 1.0, place: dict[str, Any] = F, **end: Any) -> list[Event]:
    """The start and the end of a compile that began at `at`."""
    return [
        CompileStart(**place, compile_id=compile_id, time=at, step=end.pop("step", None)),
        CompileEnd(**place, compile_id=compile_id, time=at + seconds, seconds=seconds, produced_code=True, **end),
    ]


def a_recompile(compile_id: str, at: float, reason: str = SIZE, place: dict[str, Any] = F, **end: Any) -> list[Event]:
    return [
        Recompile(**place, compile_id=compile_id, time=at, reasons=(reason,)),
        *a_compile(compile_id, at, place=place, **end),
    ]


def a_break(
    compile_id: str, at: float, line: int = 5, type: str = "Data-dependent branching", **fields: Any,
) -> GraphBreak:
    stack = (StackEntry(path=APP, line=line, function="forward"),)
    return GraphBreak(
        path=APP, line=line, function="forward", stack=stack, compile_id=compile_id, time=at, type=type, **fields,
    )


def history_of(*events: Event, **facts: Any) -> History:
    return recording_history(a_recording(a_process(*events, **facts)))


def recording_history(recording: Recording) -> History:
    return build_history(recording, diagnose(recording))


def of_kind(history: History, *kinds: MomentKind) -> list[Moment]:
    return [m for m in history.moments if m.kind in kinds]


def fingerprint(recording: Recording, code: str) -> str:
    [mark] = {f.fingerprint for f in diagnose(recording) if f.code == code}
    return mark


# time

def test_times_are_seconds_after_the_earliest_known_time() -> None:
    history = history_of(*a_compile("0/0", at=103.0), start=101.0, end=110.0)
    assert (history.start, history.seconds) == (101.0, 9.0)
    assert [(m.time, m.seconds) for m in history.moments] == [(2.0, 1.0)]


def test_the_launcher_begins_before_its_processes_and_ends_after_them() -> None:
    history = recording_history(
        a_recording(a_process(*a_compile("0/0", at=103.0), start=101.0, end=104.5), start=100.0, end=105.0)
    )
    assert (history.start, history.seconds) == (100.0, 5.0)
    assert (history.processes[0].start, history.processes[0].end) == (1.0, 4.5)


def test_a_run_without_an_end_ends_with_its_last_event() -> None:
    assert history_of(*a_compile("0/0", at=103.0, seconds=2.0), start=100.0).seconds == 5.0


def test_a_source_without_times_has_counts_and_frames_but_no_timeline() -> None:
    history = history_of(Recompile(**F, compile_id="0/1", reasons=(SIZE,)), a_break("0/1", at=0.0))
    assert (history.start, history.seconds, history.moments) == (None, None, ())
    assert [(p.num_recompiles, p.num_breaks, p.start) for p in history.processes] == [(1, 1, None)]
    assert [frame.name for frame in history.frames] == ["forward"]


def test_a_compile_begins_at_the_earlier_of_its_start_and_end_minus_length() -> None:
    late_start = [
        CompileStart(**F, compile_id="0/0", time=10.5), CompileEnd(**F, compile_id="0/0", time=12.0, seconds=2.0),
    ]
    late_end = [
        CompileStart(**F, compile_id="1/0", time=20.0), CompileEnd(**F, compile_id="1/0", time=22.5, seconds=2.0),
    ]
    assert [m.time for m in history_of(*late_start, *late_end, start=1.0).moments] == [9.0, 19.0]


def test_a_compile_without_an_end_has_no_length() -> None:
    history = history_of(CompileStart(**F, compile_id="0/0", time=5.0))
    assert [m.seconds for m in history.moments] == [None]
    assert history.frames[0].compiles[0].failed == "its end was not recorded"


# moments

def test_every_event_is_a_moment_in_chronological_order() -> None:
    history = history_of(
        *a_compile("0/0", at=1.0), *a_recompile("0/1", at=5.0, step=7), a_break("0/1", at=5.5, explanation="why"),
        LimitHit(**F, compile_id="0/2", time=9.0, reasons=(SIZE,)),
        FrameSkipped(**F, time=8.0, reason="an error was suppressed"),
    )
    assert [(m.kind, m.label, m.detail) for m in history.moments] == [
        (MomentKind.COMPILE, "forward", ""),
        (MomentKind.RECOMPILE, "forward", "tensor 'x' size mismatch at index 0. expected 4, actual 5"),
        (MomentKind.BREAK, "the test of a tensor at policy.py:5", "Data-dependent branching: why"),
        (MomentKind.SKIP, "forward", "an error was suppressed"),
        (MomentKind.LIMIT, "forward", "tensor 'x' size mismatch at index 0. expected 4, actual 5"),
    ]
    assert of_kind(history, MomentKind.RECOMPILE)[0].step == 7


def test_counts_equal_those_of_the_report() -> None:
    events = [
        *a_compile("0/0", at=1.0), a_break("0/0", at=1.5), *a_compile("1/0", at=3.0, place=resume(5)),
        *a_recompile("0/1", at=5.0), a_break("0/1", at=5.5), *a_recompile("1/1", at=7.0, place=resume(5)),
        CompileStart(**F, compile_id="2/0", time=9.0),
    ]
    recording = a_recording(a_process(*events))
    history, counts = recording_history(recording), totals(recording)
    assert len(of_kind(history, MomentKind.COMPILE, MomentKind.RECOMPILE)) == counts["compiles"] == 5
    assert len(of_kind(history, MomentKind.RECOMPILE)) == counts["recompiles"] == 2
    assert len(of_kind(history, MomentKind.BREAK)) == counts["graph_breaks"] == 2


def test_compile_ids_that_restart_after_a_reset_are_other_compiles() -> None:
    history = history_of(*a_compile("0/0", at=1.0), *a_compile("0/0", at=5.0, seconds=2.0))
    assert [(m.time, m.seconds) for m in history.moments] == [(0.0, 1.0), (4.0, 2.0)]


def test_the_backward_is_a_separate_moment_but_not_another_compile() -> None:
    history = history_of(
        *a_compile("0/0", at=1.0), CompileEnd(**F, compile_id="0/0", time=9.0, seconds=2.0, is_backward=True),
    )
    assert [(m.time, m.seconds, m.label, m.is_backward) for m in history.moments] == [
        (0.0, 1.0, "forward", False), (6.0, 2.0, "forward, backward", True),
    ]
    assert history.processes[0].num_compiles == 1
    assert [(c.seconds, c.backward_seconds) for c in history.frames[0].compiles] == [(1.0, 2.0)]
    assert history.frames[0].compile_seconds == 3.0


def test_a_resume_frame_is_labelled_with_its_function_and_line() -> None:
    sources = {(APP, 5): Source(first_line=5, lines=("    if x.sum() > 0:",), qualname="Policy.forward")}
    history = recording_history(a_recording(a_process(*a_compile("1/0", at=1.0, place=resume(5)), sources=sources)))
    assert history.moments[0].label == "Policy.forward, resumed at line 5"


def test_frames_that_dynamo_does_not_try_to_compile_are_not_shown() -> None:
    skip = FrameSkipped(
        path=LIB, line=9, function="__len__", time=3.0, reason="no tensor-related objects found in frame",
    )
    assert history_of(*a_compile("0/0", at=1.0), skip).moments[1:] == ()


# findings

def test_a_moment_names_its_finding() -> None:
    recording = a_recording(a_process(
        *a_compile("0/0", at=1.0), a_break("0/0", at=1.5), *a_compile("1/0", at=3.0, place=resume(5)),
        *a_recompile("0/1", at=5.0), *a_recompile("1/1", at=7.0, place=resume(5)),
        LimitHit(**F, compile_id="0/2", time=9.0, reasons=(SIZE,)),
    ))
    branch, size, limit = (fingerprint(recording, code) for code in ("TT103", "TT202", "TT301"))
    assert [(m.kind.value, m.fingerprint) for m in recording_history(recording).moments] == [
        ("compile", ""), ("graph break", branch), ("compile", branch), ("recompile", size), ("recompile", branch),
        ("recompile limit", limit),
    ]


def test_breaks_at_one_line_are_distinguished_by_their_kind() -> None:
    recording = a_recording(a_process(
        *a_compile("0/0", at=1.0), a_break("0/0", at=1.2),
        a_break("0/0", at=1.4, type="Unsupported Tensor.item() call"), a_break("0/0", at=1.6),
    ))
    branch, item = fingerprint(recording, "TT103"), fingerprint(recording, "TT104")
    assert [m.fingerprint for m in of_kind(recording_history(recording), MomentKind.BREAK)] == [branch, item, branch]


def test_breaks_beyond_those_that_a_finding_lists_still_name_it() -> None:
    recording = a_recording(a_process(*(a_break(f"{number}/0", at=1.0 + number) for number in range(40))))
    assert {m.fingerprint for m in recording_history(recording).moments} == {fingerprint(recording, "TT103")}


def test_recompiles_folded_into_the_outermost_frame_name_its_finding() -> None:
    call = StackEntry(path=APP, line=30, function="train")
    events: list[Event] = []
    for number in range(2):
        place = {"path": LIB, "line": 10 + number, "function": f"layer{number}"}
        stack = (call, StackEntry(path=LIB, line=10 + number, function=f"layer{number}"))
        reason = f"{number}/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"
        events += [Recompile(**place, stack=stack, compile_id=f"{number}/1", time=5.0 + number, reasons=(reason,))]
    recording = a_recording(a_process(*events, your_roots=["/app"]))
    [finding] = [f for f in diagnose(recording) if f.code == "TT201"]
    assert finding.evidence.folded
    assert [m.fingerprint for m in recording_history(recording).moments] == [finding.fingerprint] * 2


def test_a_finding_that_is_not_reported_is_not_named() -> None:
    recording = a_recording(a_process(*a_compile("0/0", at=1.0), a_break("0/0", at=1.5)))
    assert [m.fingerprint for m in build_history(recording, []).moments] == ["", ""]


def test_a_skip_names_the_finding_that_caused_it() -> None:
    generator = {"path": APP, "line": 40, "function": "rows"}
    recording = a_recording(a_process(
        CompileCall(path=APP, line=60, target="rows", target_path=APP, target_line=40, time=0.5),
        FrameSkipped(**generator, time=0.7, reason="generator functions are not supported"),
        CompileStart(**F, compile_id="0/0", time=1.0), a_break("0/0", at=1.5, whole_frame=True),
        CompileEnd(**F, compile_id="0/0", time=2.0, seconds=1.0, fail_type="Unsupported", produced_code=False),
        FrameSkipped(**F, time=2.1, reason="an error was suppressed during compilation"),
    ))
    skip, whole = (
        next(f.fingerprint for f in diagnose(recording) if f.code.startswith(code)) for code in ("TT302", "TT1")
    )
    assert [m.fingerprint for m in of_kind(recording_history(recording), MomentKind.SKIP)] == [skip, whole]


def test_a_skip_after_the_limit_names_the_limit() -> None:
    recording = a_recording(a_process(
        *a_compile("0/0", at=1.0), LimitHit(**F, compile_id="0/1", time=3.0, reasons=(SIZE,)),
        FrameSkipped(**F, time=3.1, reason="compilation failed with a custom frame execution strategy"),
    ))
    assert [m.fingerprint for m in of_kind(recording_history(recording), MomentKind.SKIP)] == [
        fingerprint(recording, "TT301")
    ]


def test_a_failed_compile_names_its_finding() -> None:
    recording = a_recording(a_process(
        CompileStart(**F, compile_id="0/0", time=1.0),
        CompileEnd(
            **F, compile_id="0/0", time=2.0, seconds=1.0, fail_type="RuntimeError", produced_code=False,
            suppress_errors=True,
        ),
    ))
    assert [m.fingerprint for m in recording_history(recording).moments] == [fingerprint(recording, "TT304")]


# processes

def process_names(*ranks: int | None) -> list[str]:
    processes = [a_process(*a_compile("0/0", at=100.0 + n), rank=rank, pid=40 + n) for n, rank in enumerate(ranks)]
    return [p.name for p in recording_history(a_recording(*processes)).processes]


@pytest.mark.parametrize(("ranks", "names"), [
    ((None,), ["main process"]),
    ((0,), ["rank 0"]),
    ((1, 0), ["rank 0", "rank 1"]),
    ((None, None), ["process 40", "process 41"]),
    ((None, 0), ["rank 0", "process 40"]),
    ((1, 0, 0), ["rank 0, process 41", "rank 0, process 42", "rank 1"]),
])
def test_processes_are_ordered_by_rank_then_by_start(ranks: tuple[int | None, ...], names: list[str]) -> None:
    assert process_names(*ranks) == names


def test_each_process_has_separate_numbers() -> None:
    first = a_process(
        *a_compile("0/0", at=100.0), *a_recompile("0/1", at=104.0), rank=0, num_steps=30, start=99.0, end=120.0,
    )
    second = a_process(
        *a_compile("0/0", at=101.0, seconds=3.0), a_break("0/0", at=102.0), rank=1, num_steps=31, start=99.5, end=121.0,
    )
    numbers = [
        (p.num_compiles, p.num_recompiles, p.num_breaks, p.compile_seconds,
         p.num_steps, p.eager_calls, p.steady_time, p.start)
        for p in recording_history(a_recording(first, second)).processes
    ]
    assert numbers == [(2, 1, 0, 2.0, 30, 0, 2.0, 0.0), (1, 0, 1, 3.0, 31, 0, 5.0, 0.5)]


def test_numbers_that_were_not_counted_are_none() -> None:
    limit = LimitHit(**F, time=3.0)
    [process] = recording_history(a_recording(a_process(limit), origin="trace")).processes
    assert (
        process.eager_calls, process.num_steps, process.step_milliseconds, process.steady_time, process.steady_step,
    ) == (None,) * 5
    assert process.compile_seconds is None


def test_without_steps_steady_state_has_a_time_and_no_step() -> None:
    [process] = history_of(*a_compile("0/0", at=5.0)).processes
    assert (process.steady_time, process.steady_step) == (1.0, None)
    [process] = history_of(*a_compile("0/0", at=5.0), num_steps=3).processes
    assert (process.steady_time, process.steady_step) == (1.0, 0)


def test_moments_and_frames_refer_to_their_process() -> None:
    late = a_process(*a_compile("0/0", at=100.0), rank=1)
    early = a_process(*a_compile("0/0", at=101.0), a_break("0/0", at=101.5), rank=0)
    history = recording_history(a_recording(late, early))
    assert [(m.kind.value, m.process) for m in history.moments] == [("compile", 1), ("compile", 0), ("graph break", 0)]
    assert [frame.process for frame in history.frames] == [0, 1]


def test_a_process_without_events_is_omitted_unless_it_is_the_only_one() -> None:
    idle, busy = a_process(Tap(name="trace", time=1.0), rank=0), a_process(*a_compile("0/0", at=1.0), rank=1)
    assert [p.rank for p in recording_history(a_recording(a_process(rank=2), idle, busy)).processes] == [1]
    assert [p.rank for p in recording_history(a_recording(a_process(rank=2), idle)).processes] == [0]


def test_a_process_that_only_trains_is_kept() -> None:
    steps = Series(name="step_seconds", steps=[2.0], values=[1.0])
    training = a_process(Tap(name="trace", time=1.0), rank=0, series={"step_seconds": steps})
    assert [
        p.rank for p in recording_history(a_recording(training, a_process(*a_compile("0/0", at=1.0), rank=1))).processes
    ] == [0, 1]


# curves

def a_training(**facts: Any) -> Process:
    steps = Series(name="step_seconds", steps=[2.0, 4.0, 6.0], values=[0.5, 1.0, 0.25])
    loss = Series(name="loss", steps=[1.0], values=[3.0])
    return a_process(*a_compile("0/0", at=100.0), series={"step_seconds": steps, "loss": loss}, start=99.0, **facts)


def test_every_series_is_a_curve() -> None:
    history = recording_history(a_recording(a_training()))
    assert [(c.name, c.process, list(c.steps), list(c.values), list(c.times)) for c in history.curves] == [
        ("step_seconds", 0, [2.0, 4.0, 6.0], [0.5, 1.0, 0.25], []), ("loss", 0, [1.0], [3.0], []),
    ]


def test_steps_have_times_if_the_end_of_the_first_is_recorded() -> None:
    [steps, _] = recording_history(a_recording(a_training(first_step_time=104.0))).curves
    assert list(steps.times) == [5.0, 6.0, 8.0]


def test_an_empty_recording_has_an_empty_history() -> None:
    assert recording_history(a_recording()) == History()
