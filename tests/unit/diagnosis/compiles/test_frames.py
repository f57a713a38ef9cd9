"""One model of every compile: its events, its generation after a reset, and the frame that it belongs to."""

from typing import Any

from tests.unit.samples import a_process
from torchtriage.diagnosis.compiles.frames import Compile, CompileFailure, CompileHistory, Frame, compile_seconds
from torchtriage.recording.events import (
    CompileEnd,
    CompileStart,
    Event,
    FrameSkipped,
    GraphBreak,
    GuardValue,
    LimitHit,
    Recompile,
)

APP, LIB = "/app/train.py", "/app/lib.py"
F: dict[str, Any] = {"path": APP, "line": 3, "function": "f"}


def a_start(compile_id: str | None, function: str = "f", line: int = 3, path: str = APP, **fields: Any) -> CompileStart:
    return CompileStart(compile_id=compile_id, path=path, line=line, function=function, **fields)


def history_of(*events: Event) -> CompileHistory:
    return CompileHistory.of(a_process(*events))


def compiles_of(*events: Event) -> list[Compile]:
    return history_of(*events).compiles


def frames_of(*events: Event) -> list[Frame]:
    return list(history_of(*events).frames.values())


def test_a_compile_has_all_its_events() -> None:
    again, start = Recompile(**F, compile_id="0/1", reasons=("0/0: k == 1",)), a_start("0/1", step=7)
    broken, value = GraphBreak(**F, compile_id="0/1"), GuardValue(compile_id="0/1", source="L['k']", value="2")
    end = CompileEnd(**F, compile_id="0/1", seconds=2.0)
    backward = CompileEnd(**F, compile_id="0/1", seconds=1.0, is_backward=True)
    [compile_] = compiles_of(again, start, broken, value, end, backward)
    assert (compile_.recompile, compile_.start, compile_.end) == (again, start, end)
    assert (compile_.backward, compile_.breaks, compile_.values) == ([backward], [broken], {"L['k']": "2"})
    assert (compile_.key, compile_.step, compile_.frame_number) == ((APP, "f", 3), 7, "0")
    assert (compile_.reasons, compile_.failure, compile_.is_complete) == (("0/0: k == 1",), None, True)
    assert (compile_.seconds, compile_seconds([compile_])) == (2.0, 3.0)


def test_an_error_that_ended_a_compile_is_its_failure() -> None:
    end = CompileEnd(**F, compile_id="0/0", fail_type="Boom", fail_reason="no", suppress_errors=True)
    [compile_] = compiles_of(a_start("0/0"), end)
    assert compile_.failure == CompileFailure(type="Boom", reason="no", is_suppressed=True)
    assert not compile_.is_complete


def test_a_compile_begins_at_its_earliest_known_time() -> None:
    assert compiles_of(a_start("0/0", time=5.0))[0].begin == 5.0
    end = CompileEnd(**F, compile_id="0/0", time=9.0, seconds=4.5)
    assert compiles_of(a_start("0/0", time=5.0), end)[0].begin == 4.5
    assert compiles_of(a_start("0/0"))[0].begin == 0.0


def test_the_history_is_built_once_per_process() -> None:
    process = a_process(a_start("0/0"))
    assert CompileHistory.of(process) is CompileHistory.of(process)


# generations

def test_a_compile_id_that_starts_again_opens_a_generation() -> None:
    compiles = compiles_of(a_start("0/0"), a_start("1/0", "g"), a_start("0/0", "g"), a_start("1/0"))
    assert [(c.generation, c.compile_id, c.place.function) for c in compiles] == [
        (0, "0/0", "f"), (0, "1/0", "g"), (1, "0/0", "g"), (1, "1/0", "f")]
    assert history_of(a_start("0/0")).num_generations == 1


def test_a_recompile_that_is_reported_again_opens_a_generation() -> None:
    """A text log has no starts."""
    compiles = compiles_of(*[Recompile(**F, compile_id="0/1")] * 2)
    assert [c.generation for c in compiles] == [0, 1]


def test_a_recompile_and_its_start_are_one_compile_of_one_generation() -> None:
    once = (a_start("0/0"), Recompile(**F, compile_id="0/1"), a_start("0/1"))
    compiles = compiles_of(*once, a_start("0/0"), Recompile(**F, compile_id="0/1"), a_start("0/1"))
    assert [(c.generation, c.compile_id) for c in compiles] == [(0, "0/0"), (0, "0/1"), (1, "0/0"), (1, "0/1")]


def test_events_belong_to_the_compile_of_their_own_generation() -> None:
    first, second = a_start("0/0"), a_start("0/0", "g", 9)
    end, later_end = CompileEnd(**F, compile_id="0/0"), CompileEnd(path=APP, line=9, function="g", compile_id="0/0")
    broken, later_break = (
        GraphBreak(**F, compile_id="0/0"), GraphBreak(path=APP, line=9, function="g", compile_id="0/0"),
    )
    limit, skip = LimitHit(**F, compile_id="0/8"), FrameSkipped(path=LIB, line=1, function="h")
    history = history_of(first, broken, end, limit, second, later_break, later_end, skip)
    assert [history.start_of(event) for event in (broken, end)] == [first, first]
    assert [history.start_of(event) for event in (later_break, later_end)] == [second, second]
    assert [history.generation_of(event) for event in (broken, limit, later_break, skip)] == [0, 0, 1, 1]
    assert [history.find(generation, "0/0") for generation in (0, 1, 2)] == [*history.compiles, None]


def test_an_unfinished_compile_has_no_events_of_a_later_generation() -> None:
    orphan, end = GraphBreak(**F, compile_id="1/0"), CompileEnd(**F, compile_id="1/0")
    history = history_of(a_start("0/0"), a_start("1/0", "g"), a_start("0/0"), orphan, end)
    assert history.compile_of(orphan) is None
    assert history.compile_of(end) not in (None, history.find(0, "1/0"))


def test_a_backward_may_be_compiled_after_a_reset() -> None:
    backward = CompileEnd(path=APP, line=9, function="g", compile_id="1/0", is_backward=True)
    history = history_of(a_start("0/0"), a_start("1/0", "g", 9), a_start("0/0"), backward)
    assert history.compile_of(backward) is history.find(0, "1/0")


def test_events_without_a_start_belong_to_no_compile() -> None:
    broken = GraphBreak(**F, compile_id="0/0")
    history = history_of(broken)
    assert (history.compile_of(broken), history.start_of(broken), history.generation_of(broken)) == (None, broken, 0)


# frames

def test_a_frame_collects_all_events_of_its_code() -> None:
    events = (
        a_start("0/0"), CompileEnd(**F, compile_id="0/0", seconds=1.0),
        Recompile(**F, compile_id="0/1"), a_start("0/1"),
        CompileEnd(**F, compile_id="0/1", seconds=2.0), CompileEnd(**F, compile_id="0/1", is_backward=True),
        LimitHit(**F, compile_id="0/2"), GraphBreak(**F),
    )
    [frame] = frames_of(*events)
    assert frame.key == (APP, "f", 3)
    assert [len(kind) for kind in (frame.starts, frame.ends, frame.recompiles, frame.limits)] == [2, 3, 1, 1]
    assert (frame.function, frame.is_resume) == ("f", False)


def test_frames_differ_by_path_function_and_first_line() -> None:
    frames = frames_of(a_start("0/0"), a_start("1/0", line=4), a_start("2/0", "g"), a_start("3/0", path=LIB))
    assert len(frames) == 4


def test_a_reset_of_dynamo_neither_splits_a_frame_nor_joins_two() -> None:
    frames = frames_of(a_start("0/0"), a_start("1/0", "g"), a_start("0/0", "g"), a_start("1/0"))
    assert {frame.function: len(frame.starts) for frame in frames} == {"f": 2, "g": 2}


def test_seconds_of_a_frame_are_the_sum_of_its_timed_compiles() -> None:
    ends = [
        CompileEnd(**F, compile_id=f"0/{number}", seconds=seconds) for number, seconds in enumerate((1.0, 2.0, None))
    ]
    [frame] = frames_of(*ends)
    assert frame.seconds == 3.0
    assert [compile_seconds([compile_]) for compile_ in frame.compiles] == [1.0, 2.0, None]


def test_a_frame_that_was_never_timed_has_no_seconds() -> None:
    [frame] = frames_of(a_start("0/0"))
    assert frame.seconds is None
