"""The next break of a function that Dynamo traced only up to its first one."""

import textwrap

import pytest

from torchtriage.diagnosis.graph_breaks.next_break import next_break
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process, Source

APP = "/app/model.py"


def next_line(source: str, line: int, code: str = "TT101", gb_id: str = "GB0059", *breaks: GraphBreak) -> int | None:
    """The line after the one at `line`; the source begins at line 10."""
    lines = tuple(textwrap.dedent(source).strip("\n").split("\n"))
    process = Process(events=breaks, sources={(APP, line): Source(first_line=10, lines=lines)})
    return next_break(process, StackEntry(path=APP, line=line, function="f"), code, gb_id)


LOOP = """
def f(xs):
    for x in xs:
        print("a")
        y = x * 2
        print("b")
    {}
    print("c")
    return y
"""


def test_the_next_print_of_the_block_is_named() -> None:
    assert next_line(LOOP.format("pass"), 12) == 14


def test_a_print_behind_the_loop_is_named() -> None:
    assert next_line(LOOP.format("pass"), 14) == 16


@pytest.mark.parametrize("between", [
    "if x: print(1)", "for y in xs: print(1)", "return y", "raise ValueError", "with a: print(1)", "assert y",
])
def test_nothing_is_foretold_behind_a_statement_that_may_end_the_function(between: str) -> None:
    assert next_line(LOOP.format(between), 14) is None


@pytest.mark.parametrize("code", [
    "v and print(1)", "print(1) if v else 0", "g = lambda: print(1)", "g = [print(1) for _ in xs]", "log.print(1)",
    "printed(1)",
])
def test_a_call_that_may_not_run_or_is_another_function_is_not_foretold(code: str) -> None:
    assert next_line(f"def f(x):\n    print(1)\n    {code}\n    return x", 11) is None


def test_a_return_in_the_loop_hides_what_follows_the_loop() -> None:
    source = "def f(xs):\n    for x in xs:\n        if x:\n            return x\n        print(1)\n    print(2)"
    assert next_line(source, 14) is None


def test_the_next_item_is_named() -> None:
    source = "def f(x):\n    a = x.sum().item()\n    b = x.count(1)\n    return x.max().item() + a"
    assert next_line(source, 11, "TT104", "GB0124") == 13
    assert next_line(source.replace("max().item()", "item(3)"), 11, "TT104", "GB0124") is None


def test_another_cause_or_a_break_that_was_seen_is_not_foretold() -> None:
    source = "def f(x):\n    print(1)\n    print(2)\n    return x"
    assert next_line(source, 11) == 12
    assert next_line(source, 11, "TT101", "GB0296") is None
    assert next_line(source, 11, "TT103", "GB0170") is None
    assert next_line(source, 11, "TT101", "GB0059", GraphBreak(path=APP, line=12)) is None
