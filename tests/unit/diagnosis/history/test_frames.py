"""The compiled functions of a run: their compiles, what each was made for, and the pieces they were cut into."""

from typing import Any

import pytest

from tests.unit.diagnosis.history.test_build import (
    APP,
    SIZE,
    F,
    a_break,
    a_compile,
    a_recompile,
    history_of,
    recording_history,
    resume,
)
from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.history.frames import MAX_COMPILES, MAX_GUARDS
from torchtriage.findings.history import FrameHistory
from torchtriage.recording.events import (
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    FrameSkipped,
    GraphBreak,
    GuardValue,
    LimitHit,
    Recompile,
    StackEntry,
)
from torchtriage.recording.recording import Source

G: dict[str, Any] = {"path": APP, "line": 30, "function": "g"}


def frame_of(*events: Event, **facts: Any) -> FrameHistory:
    [frame] = history_of(*events, **facts).frames
    return frame


def links(frame: FrameHistory) -> list[str]:
    """Pieces as their number of operations, breaks by their label."""
    return [link.label if link.is_break else f"[{link.num_ops}]" for link in frame.chain]


# which frames

def test_resume_frames_are_part_of_the_function_they_resume() -> None:
    frame = frame_of(*a_compile("0/0", at=1.0), a_break("0/0", at=1.5), *a_compile("1/0", at=3.0, place=resume(5)))
    assert (frame.name, frame.num_compiles, frame.location.line) == ("forward", 2, 3)
    assert [(c.compile_id, c.resumed_at) for c in frame.compiles] == [("0/0", None), ("1/0", 5)]


def test_a_resume_frame_joins_the_function_that_begins_above_it() -> None:
    second = {**F, "line": 20}
    history = history_of(
        *a_compile("0/0", at=1.0), *a_compile("1/0", at=3.0, place=second),
        *a_compile("2/0", at=5.0, place=resume(25)), *a_compile("3/0", at=7.0, place=resume(5)),
    )
    assert {f.location.line: [c.compile_id for c in f.compiles] for f in history.frames} == {
        3: ["0/0", "3/0"], 20: ["1/0", "2/0"],
    }


def test_a_resume_frame_whose_function_was_never_compiled_is_separate() -> None:
    frame = frame_of(*a_compile("2/0", at=5.0, place=resume(25)))
    assert (frame.name, frame.location.line) == ("forward", 25)


def test_the_frame_with_the_longest_compile_time_comes_first() -> None:
    history = history_of(*a_compile("0/0", at=1.0, seconds=1.0), *a_compile("1/0", at=3.0, seconds=5.0, place=G))
    assert [(f.name, f.compile_seconds) for f in history.frames] == [("g", 5.0), ("forward", 1.0)]


def test_a_frame_has_its_qualified_name_if_the_source_is_recorded() -> None:
    sources = {(APP, 3): Source(first_line=3, lines=("    def forward(self, x):",), qualname="Policy.forward")}
    [frame] = recording_history(a_recording(a_process(*a_compile("0/0", at=1.0), sources=sources))).frames
    assert (frame.name, frame.location.function) == ("Policy.forward", "Policy.forward")


def test_a_module_that_torch_wraps_is_shown_where_it_is_called() -> None:
    wrapper: dict[str, Any] = {
        "path": "/v/site-packages/torch/_dynamo/external_utils.py", "line": 67, "function": "inner",
    }
    called = StackEntry(path=APP, line=12, function="train")
    frame = frame_of(CompileStart(**wrapper, stack=(called,), compile_id="0/0", time=1.0), your_roots=["/app"])
    assert (frame.name, str(frame.location)) == ("the module called at policy.py:12", f"{APP}:12")


def test_a_frame_at_its_limit_says_so_and_names_all_its_findings() -> None:
    recording = a_recording(a_process(
        *a_compile("0/0", at=1.0), a_break("0/0", at=1.5), *a_recompile("0/1", at=3.0),
        LimitHit(**F, compile_id="0/2", time=5.0, reasons=(SIZE,)),
    ))
    [frame] = recording_history(recording).frames
    assert frame.is_at_limit
    assert len(set(frame.fingerprints)) == len(frame.fingerprints) == 3     # limit, size, break


# what each compile was made for

def test_a_compile_has_the_guards_that_failed_before_it() -> None:
    reason = "0/0: k == 2  # return x * k  # app/policy.py:4 in forward\nUser stack trace:\n  File ...   "
    frame = frame_of(
        *a_compile("0/0", at=1.0), *a_recompile("0/1", at=3.0, reason=reason, num_graph_ops=4, num_guards=9, step=2),
    )
    first, second = frame.compiles
    assert first.guards_failed == ()
    assert second.guards_failed == ("0/0: k == 2 # return x * k # app/policy.py:4 in forward",)
    assert (second.num_ops, second.num_guards, second.step, second.time) == (4, 9, 2, 2.0)


def test_sizes_come_first_and_have_the_names_of_the_program() -> None:
    values = [("L['self'].scale", "2"), ("L['obs'].size()[0]", "17"), ("L['obs'].stride()[0]", "4")]
    frame = frame_of(
        *a_compile("0/0", at=1.0), *(GuardValue(compile_id="0/0", time=1.5, source=s, value=v) for s, v in values),
    )
    assert frame.compiles[0].values == (("obs.size(0)", "17"), ("self.scale", "2"), ("obs.stride(0)", "4"))


def test_a_failed_guard_shows_the_values_of_the_previous_entry() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0), *a_recompile("0/1", at=3.0),
        *a_recompile("0/2", at=5.0, reason="0/1: len(rows) == 2"),
    )
    assert [c.values for c in frame.compiles] == [(("x.size(0)", "4"),), (("x.size(0)", "5"), ("len(rows)", "2")), ()]


def test_an_inequality_guard_shows_no_value() -> None:
    frame = frame_of(*a_compile("0/0", at=1.0), *a_recompile("0/1", at=3.0, reason="0/0: len(rows) != 0"))
    assert [c.values for c in frame.compiles] == [(), ()]


def test_a_reason_refers_to_the_entry_since_the_last_reset() -> None:
    frame = frame_of(*a_compile("0/0", at=1.0), *a_compile("0/0", at=3.0), *a_recompile("0/1", at=5.0))
    assert [dict(c.values).get("x.size(0)") for c in frame.compiles] == [None, "4", "5"]


@pytest.mark.parametrize(("end", "failed"), [
    ({"fail_type": "Unsupported", "fail_reason": "print\n  more", "produced_code": False}, "Unsupported: print"),
    ({"fail_type": "InternalTorchDynamoError", "produced_code": False}, "InternalTorchDynamoError"),
    ({"produced_code": False}, "no code"),
    ({"produced_code": True}, ""),
    ({}, ""),
])
def test_a_compile_says_why_it_produced_no_code(end: dict[str, Any], failed: str) -> None:
    frame = frame_of(
        CompileStart(**F, compile_id="0/0", time=1.0), CompileEnd(**F, compile_id="0/0", time=2.0, seconds=1.0, **end),
    )
    assert frame.compiles[0].failed == failed


def test_the_first_and_last_of_very_many_compiles_are_kept() -> None:
    events = [
        event for number in range(MAX_COMPILES + 50) for event in a_compile(f"0/{number}", at=1.0 + number, seconds=0.5)
    ]
    frame = frame_of(*events)
    numbers = [int(c.compile_id.rpartition("/")[2]) for c in frame.compiles]
    assert numbers == [*range(MAX_COMPILES // 2), *range(MAX_COMPILES // 2 + 50, MAX_COMPILES + 50)]
    assert (frame.num_compiles, frame.compile_seconds) == (MAX_COMPILES + 50, (MAX_COMPILES + 50) * 0.5)


def test_guards_beyond_the_maximum_are_counted() -> None:
    reasons = tuple(f"0/{number}: k == {number}" for number in reversed(range(MAX_GUARDS + 3)))
    recompile = Recompile(**F, compile_id="0/11", time=3.0, reasons=reasons, num_omitted=1_000)
    frame = frame_of(recompile, *a_compile("0/11", at=3.0))
    assert frame.compiles[0].guards_failed[-1] == "0/3: k == 3"
    assert len(frame.compiles[0].guards_failed) == MAX_GUARDS
    assert frame.compiles[0].num_guards_failed == MAX_GUARDS + 1_003


# the chain

def test_pieces_and_breaks_are_in_execution_order() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0, num_graph_ops=4), a_break("0/0", at=1.5, line=5),
        *a_compile("1/0", at=3.0, place=resume(5), num_graph_ops=2),
        a_break("1/0", at=3.5, line=8, type="Unsupported Tensor.item() call"),
        *a_compile("2/0", at=5.0, place=resume(8), num_graph_ops=7),
    )
    assert links(frame) == [
        "[4]", "the test of a tensor at policy.py:5", "[2]", "reading a tensor's value at policy.py:8", "[7]",
    ]
    assert [link.label for link in frame.chain if not link.is_break] == [
        "forward", "resumed at line 5", "resumed at line 8",
    ]
    assert [bool(link.fingerprint) for link in frame.chain] == [False, True, False, True, False]


def test_the_chain_shows_the_newest_compiles() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0, num_graph_ops=4), a_break("0/0", at=1.5),
        *a_compile("1/0", at=3.0, place=resume(5), num_graph_ops=2),
        *a_recompile("1/1", at=5.0, place=resume(5), num_graph_ops=3), *a_recompile("0/1", at=7.0, num_graph_ops=9),
        a_break("0/1", at=7.5), CompileStart(**F, compile_id="0/2", time=9.0),      # still under way
    )
    assert links(frame)[::2] == ["[9]", "[3]"]
    assert [link.compile_id for link in frame.chain if not link.is_break] == ["0/1", "1/1"]


def test_the_chain_has_no_pieces_from_before_a_reset() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0), a_break("0/0", at=1.5), *a_compile("1/0", at=3.0, place=resume(5), num_graph_ops=2),
        *a_compile("0/0", at=9.0, num_graph_ops=8),
    )
    assert links(frame) == ["[8]"]


def test_a_data_dependent_branch_has_two_pieces_after_it() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0, num_graph_ops=4), a_break("0/0", at=1.5),
        *a_compile("1/0", at=3.0, place=resume(5), num_graph_ops=1),
        *a_compile("2/0", at=5.0, place=resume(5), num_graph_ops=2),
    )
    pieces = [(link.num_ops, link.detail) for link in frame.chain if not link.is_break]
    assert pieces == [(4, ""), (1, "branch 1 of 2"), (2, "branch 2 of 2")]


def test_a_break_in_a_called_function_cuts_the_caller_at_the_call() -> None:
    stack = (StackEntry(path=APP, line=5, function="forward"), StackEntry(path=APP, line=33, function="g"))
    inner = {"path": APP, "line": 33, "function": "g", "stack": stack, "type": "Data-dependent branching"}
    history = history_of(
        *a_compile("0/0", at=1.0, num_graph_ops=4), GraphBreak(**inner, compile_id="0/0", time=1.5),
        *a_compile("1/0", at=3.0, place=resume(5), num_graph_ops=6),
        *a_compile("2/0", at=5.0, place=G, num_graph_ops=1),
    )
    chains = {f.name: links(f) for f in history.frames}
    assert chains == {"forward": ["[4]", "the test of a tensor at policy.py:33", "[6]"], "g": ["[1]"]}


def test_pieces_that_follow_no_break_are_in_line_order() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0, num_graph_ops=4), *a_compile("1/0", at=3.0, place=resume(9), num_graph_ops=9),
        *a_compile("2/0", at=5.0, place=resume(6), num_graph_ops=6),
    )
    assert links(frame) == ["[4]", "[6]", "[9]"]


def test_a_whole_frame_break_is_the_only_link_of_the_chain() -> None:
    frame = frame_of(
        CompileStart(**F, compile_id="0/0", time=1.0), a_break("0/0", at=1.5, whole_frame=True),
        CompileEnd(**F, compile_id="0/0", time=2.0, seconds=1.0, fail_type="Unsupported", produced_code=False),
    )
    [link] = frame.chain
    assert (link.is_break, link.detail, bool(link.fingerprint)) == (True, "forward runs eager", True)


def test_the_piece_after_a_break_may_run_eager_too() -> None:
    frame = frame_of(
        *a_compile("0/0", at=1.0, num_graph_ops=4), a_break("0/0", at=1.5),
        CompileStart(**resume(5), compile_id="1/0", time=3.0), a_break("1/0", at=3.5, line=8, whole_frame=True),
        CompileEnd(**resume(5), compile_id="1/0", time=4.0, seconds=1.0, fail_type="Unsupported", produced_code=False),
    )
    assert [link.is_break for link in frame.chain] == [False, True, True]
    assert frame.chain[-1].detail == "the rest of forward runs eager"


def test_a_compile_that_failed_without_a_break_shows_its_error() -> None:
    frame = frame_of(
        CompileStart(**F, compile_id="0/0", time=1.0),
        CompileEnd(**F, compile_id="0/0", time=2.0, seconds=1.0, fail_type="TorchRuntimeError", produced_code=False),
    )
    assert [(link.label, link.detail) for link in frame.chain] == [
        ("TorchRuntimeError while compiling", "forward runs eager")
    ]


def test_a_target_that_dynamo_skips_is_listed_without_compiles() -> None:
    frame = frame_of(
        CompileCall(path=APP, line=60, target="rows", target_path=APP, target_line=40, time=0.5),
        FrameSkipped(path=APP, line=40, function="rows", time=0.7, reason="generator functions are not supported"),
    )
    assert (frame.name, frame.num_compiles, len(frame.fingerprints)) == ("rows", 0, 1)
    assert [(link.is_break, link.label) for link in frame.chain] == [(True, "Dynamo skips the frame")]


def test_a_log_has_only_recompiles_and_their_breaks() -> None:
    frame = frame_of(Recompile(**F, compile_id="0/1", reasons=(SIZE,)), a_break("0/1", at=0.0))
    assert [(c.compile_id, c.seconds, c.num_ops, c.failed) for c in frame.compiles] == [("0/1", None, None, "")]
    assert links(frame) == ["[None]", "the test of a tensor at policy.py:5"]
    assert frame.compile_seconds is None
