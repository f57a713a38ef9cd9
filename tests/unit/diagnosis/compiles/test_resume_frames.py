"""A resume frame is joined with the graph break that made it."""

from typing import Any

import pytest

from tests.unit.samples import a_process
from torchtriage.diagnosis.compiles.resume_frames import BreakKey, break_key, breaks_of_resume_frames
from torchtriage.recording.events import CompileStart, GraphBreak, StackEntry

APP, LIB = "/app/train.py", "/app/lib.py"


def a_start(compile_id: str, function: str = "f", line: int = 3, path: str = APP) -> CompileStart:
    return CompileStart(compile_id=compile_id, path=path, line=line, function=function)


def a_resume(compile_id: str, line: int, function: str = "f", path: str = APP) -> CompileStart:
    return a_start(compile_id, f"torch_dynamo_resume_in_{function}_at_{line}", line, path)


def a_break(compile_id: str | None, *lines: tuple[str, str, int], type: str = "print") -> GraphBreak:
    """A break with this user stack: (path, function, line), outermost first."""
    stack = tuple(StackEntry(path=path, function=function, line=line) for path, function, line in lines)
    return GraphBreak(
        path=stack[-1].path, line=stack[-1].line, function=stack[-1].function, stack=stack, compile_id=compile_id,
        type=type,
    )


def breaks_of(*events: Any) -> dict[str, tuple[BreakKey, ...]]:
    return {key[1]: breaks for key, breaks in breaks_of_resume_frames(a_process(*events)).items()}


def test_a_resume_frame_joins_the_break_at_its_line() -> None:
    one = a_break("0/0", (APP, "<module>", 20), (APP, "f", 4))
    assert breaks_of(a_start("0/0"), one, a_resume("1/0", 4)) == {"torch_dynamo_resume_in_f_at_4": (break_key(one),)}


def test_a_resume_frame_joins_a_break_below_its_line() -> None:
    """A break in a function that f calls leaves f at the line of the call."""
    one = a_break("0/0", (APP, "<module>", 20), (APP, "f", 5), (LIB, "helper", 9))
    assert breaks_of(a_start("0/0"), one, a_resume("1/0", 5)) == {"torch_dynamo_resume_in_f_at_5": (break_key(one),)}


def test_a_break_in_a_resume_frame_resumes_the_same_function() -> None:
    one, two = a_break("0/0", (APP, "f", 4)), a_break("1/0", (APP, "f", 6))
    breaks = breaks_of(a_start("0/0"), one, a_resume("1/0", 4), two, a_resume("2/0", 6))
    assert breaks == {
        "torch_dynamo_resume_in_f_at_4": (break_key(one),), "torch_dynamo_resume_in_f_at_6": (break_key(two),),
    }


def test_a_resume_frame_that_matches_several_breaks_lists_each_once() -> None:
    one, two = a_break("0/0", (APP, "f", 4), (LIB, "a", 1)), a_break("0/1", (APP, "f", 4), (LIB, "b", 2))
    breaks = breaks_of(a_start("0/0"), one, one, a_start("0/1"), two, a_resume("1/0", 4))
    assert breaks == {"torch_dynamo_resume_in_f_at_4": (break_key(one), break_key(two))}


@pytest.mark.parametrize("stack", [
    [(APP, "f", 5)],
    [(APP, "g", 4)],
    [(LIB, "f", 4)],
    [(APP, "<module>", 4), (LIB, "helper", 9)],
])
def test_a_resume_frame_that_matches_no_break_is_kept_without_one(stack: list[tuple[str, str, int]]) -> None:
    assert breaks_of(a_start("0/0"), a_break("0/0", *stack), a_resume("1/0", 4)) == {
        "torch_dynamo_resume_in_f_at_4": ()
    }


def test_only_the_lines_of_the_compiled_frame_count() -> None:
    """g compiles on its own and breaks; nothing left f, which called it, at line 4."""
    one = a_break("1/0", (APP, "f", 4), (APP, "g", 9))
    breaks = breaks_of(a_start("0/0"), a_start("1/0", "g", 8), one, a_resume("2/0", 4), a_resume("3/0", 9, "g"))
    assert breaks == {"torch_dynamo_resume_in_f_at_4": (), "torch_dynamo_resume_in_g_at_9": (break_key(one),)}


@pytest.mark.parametrize("compile_id", [None, "7/0"])
def test_every_line_of_the_stack_counts_if_the_compiled_frame_is_unknown(compile_id: str | None) -> None:
    one = a_break(compile_id, (APP, "f", 4), (APP, "g", 9))
    breaks = breaks_of(one, a_resume("2/0", 4), a_resume("3/0", 9, "g"))
    assert breaks == {
        "torch_dynamo_resume_in_f_at_4": (break_key(one),), "torch_dynamo_resume_in_g_at_9": (break_key(one),),
    }


def test_a_compile_id_after_a_reset_refers_to_its_new_frame() -> None:
    before = a_break("0/0", (APP, "f", 4))
    after = a_break("0/0", (APP, "f", 4), (APP, "g", 9), type="item")
    breaks = breaks_of(
        a_start("0/0"), before, a_resume("1/0", 4), a_start("0/0", "g", 8), after, a_resume("1/0", 9, "g"),
    )
    assert breaks == {
        "torch_dynamo_resume_in_f_at_4": (break_key(before),), "torch_dynamo_resume_in_g_at_9": (break_key(after),),
    }


def test_a_break_without_a_stack_is_joined_by_its_own_line() -> None:
    one = GraphBreak(path=APP, line=4, function="f", type="print")
    assert breaks_of(one, a_resume("1/0", 4)) == {"torch_dynamo_resume_in_f_at_4": (break_key(one),)}


def test_frames_that_are_not_resume_frames_are_not_joined() -> None:
    assert breaks_of(a_start("0/0"), a_break("0/0", (APP, "f", 4))) == {}


def test_a_stack_without_the_broken_frame_is_completed_from_the_same_break() -> None:
    net, call = (
        StackEntry(path="/p/net.py", line=12, function="forward"),
        StackEntry(path="/p/net.py", line=18, function="<module>"),
    )
    conv = StackEntry(path="/l/conv.py", line=99, function="norm")
    kind: dict[str, Any] = {
        "path": "/l/conv.py", "line": 99, "function": "norm", "type": "Dynamic shape operator", "gb_id": "GB0036",
    }
    resume = CompileStart(path="/p/net.py", line=12, function="torch_dynamo_resume_in_forward_at_12", compile_id="2/0")
    joined = breaks_of_resume_frames(a_process(
        CompileStart(path="/p/net.py", line=11, function="forward", compile_id="0/0"),
        GraphBreak(**kind, compile_id="0/0", stack=(call, conv)),
        CompileStart(path="/l/conv.py", line=90, function="norm", compile_id="1/0"),
        GraphBreak(**kind, compile_id="1/0", stack=(call, net, conv)), resume,
    ))
    assert joined == {(resume.path, resume.function, resume.line): (break_key(GraphBreak(**kind)),)}
