"""A graph break is blamed for a frame that runs eager only within its own generation of compiles."""

from typing import Any

from tests.unit.samples import a_process
from torchtriage.diagnosis.compiles.eager import EagerFrame, EagerFrames
from torchtriage.recording.events import CompileEnd, CompileStart, Event, FrameSkipped, GraphBreak, StackEntry
from torchtriage.recording.recording import Source

APP = "/app/train.py"
MAIN = StackEntry(path=APP, line=40, function="<module>")


def place(function: str, line: int) -> dict[str, Any]:
    return {"path": APP, "line": line, "function": function}


def a_start(function: str, line: int) -> CompileStart:
    own = StackEntry(path=APP, line=line, function=function)
    return CompileStart(**place(function, line), compile_id="0/0", stack=(MAIN, own))


def a_break(function: str, line: int, *callers: StackEntry, **fields: Any) -> GraphBreak:
    own = StackEntry(path=APP, line=line, function=function)
    return GraphBreak(**place(function, line), compile_id="0/0", stack=(MAIN, *callers, own), type="print", **fields)


def eager(*events: Event) -> tuple[EagerFrame, ...]:
    process = a_process(*events)
    return EagerFrames.of(process).behind(list(process.of(GraphBreak)))


def test_a_whole_frame_break_makes_its_frame_run_eager() -> None:
    [frame] = eager(a_start("f", 3), a_break("f", 4, whole_frame=True))
    assert (str(frame), frame.is_outermost) == ("all of f", True)


def test_the_same_compile_id_after_a_reset_is_another_frame() -> None:
    frames = eager(
        a_start("f", 3), a_break("f", 4, whole_frame=True), a_start("g", 13), a_break("g", 14, whole_frame=True),
    )
    assert [frame.function for frame in frames] == ["f", "g"]


def test_a_skip_after_a_reset_is_not_attributed_to_a_break_before_it() -> None:
    before, skip = a_break("f", 4), FrameSkipped(**place("f", 3), reason="gave up")
    assert eager(a_start("f", 3), before, skip) != ()
    assert eager(a_start("f", 3), before, a_start("f", 3), skip) == ()


def test_code_of_one_generation_does_not_clear_the_break_of_another() -> None:
    skip = FrameSkipped(**place("f", 3), reason="gave up")
    end = CompileEnd(**place("f", 3), compile_id="0/0", produced_code=True)
    [frame] = eager(a_start("f", 3), a_break("f", 4), skip, a_start("f", 3), a_break("f", 9), end)
    assert frame.function == "f"
    assert eager(a_start("f", 3), a_break("f", 4), end, skip) == ()


def test_a_caller_that_was_compiled_before_a_reset_is_not_above_the_frame() -> None:
    caller = StackEntry(path=APP, line=5, function="f")
    inner = a_break("g", 14, caller, whole_frame=True)
    [frame] = eager(a_start("f", 3), a_start("g", 13), inner)
    assert frame.is_outermost


def test_of_two_methods_of_one_name_the_compiled_one_runs_eager() -> None:
    net = StackEntry(path=APP, line=30, function="forward")
    broken = a_break("forward", 16, net, whole_frame=True)
    start = CompileStart(**place("forward", 26), compile_id="0/0", stack=(MAIN, StackEntry(**place("forward", 26))))
    names = {26: "Net.forward", 30: "Net.forward", 16: "Attention.forward"}
    sources = {(APP, line): Source(first_line=line, lines=("",), qualname=name) for line, name in names.items()}
    process = a_process(start, broken, sources=sources)
    [frame] = EagerFrames.of(process).behind([broken])
    assert (str(frame), frame.call) == ("all of Net.forward", "train.py:30")


def test_the_line_of_a_call_that_torch_omits_comes_from_another_break_of_the_place() -> None:
    main = StackEntry(path=APP, line=30, function="main")
    whole, cut = a_break("helper", 16, whole_frame=True), a_break("helper", 16, main)
    process = a_process(CompileStart(**place("main", 26), compile_id="0/0", stack=(MAIN,)), whole)
    [frame] = EagerFrames.of(process).behind([whole, cut])
    assert frame.call == "train.py:30"
