"""PyTorch's text for a graph break, in the forms of 2.9 and 2.13."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.capture.readers.break_text import parse_break, parse_stack
from torchtriage.recording.events import StackEntry

SECTIONS = """\
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)
  Hint: Avoid calling builtin `print` with argument types ['str'].
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html
"""
STACK = """\
User code traceback:
  File "/app/train.py", line 20, in <module>
    f(torch.ones(i), 2)
  File "/app/train.py", line 4, in f
    print("hello")
    ^^^^^^^^^^^^^^
"""
RAISED = """\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
    return inner_fn(self, inst)
           ^^^^^^^^^^^^^^^^^^^^
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
""" + SECTIONS
OLD = (
    "Graph break in user code at /app/train.py:4\n"
    f"Graph Break Reason: Failed to trace builtin operator\n{SECTIONS}\n{STACK}\n"
)
NEW = (
    "Graph break in user code at /app/train.py:4\n"
    "Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):\n\n"
    f"Failed to trace builtin operator\n{SECTIONS}\n{STACK}\n{RAISED}"
)
BRANCH = """\
Graph break in user code at /app/train.py:6
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). \
Dynamo does not support tracing dynamic control flow.

      The branch condition involves a tensor computed as follows:
        # File "/app/train.py", line 6, in torch_dynamo_resume_in_f_at_4, code: if y.sum() > 0:
        gt = gt(sum_1, 0)

  Hint: Use `torch.cond` to express dynamic control flow.

  Developer debug context: attempted to jump with TensorVariable()

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html

User code traceback:
  File "/app/train.py", line 20, in <module>
    f(torch.ones(i), 2)
  File "/app/train.py", line 6, in f
    if y.sum() > 0:
       ^^^^^^^^^^^^

NoneType: None
"""
LOOP = f"""\
Graph break in user code at /app/train.py:11
Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. \
Graph break encountered:

Failed to trace builtin operator
{SECTIONS}
*** While handling this graph break, another graph break occurred: ***

graph break in loop
  Explanation: torch.compile detected a graph break in a for/while loop. Skipping the frame and falling back to eager, \
as graph breaks in loops are not supported.
  Hint: This graph break may have been caused by an earlier graph break. \
Resolving the earlier graph break may resolve this one.

  Developer debug context: frame skipped: loop (/app/train.py line 9)

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb7000.html

Stack variable source attribution:
  RangeIteratorVariable() originated from:
  File "/app/train.py", line 10
        for i in range(3):
        ^^^^^^^^^^^^^^^^^^

User code traceback:
  File "/app/train.py", line 21, in <module>
    g(torch.ones(2))
  File "/app/train.py", line 11, in loop
    print(i)

{RAISED}
"""
NOT_CONVERTED = """\
WON'T CONVERT generator /app/train.py line 20
due to:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py", line 1625, in __call__
    result = self._inner_convert(
             ^^^^^^^^^^^^^^^^^^^^
torch._dynamo.exc.Unsupported: Attempt to trace generator
  Explanation: Generators cannot be compiled directly with `torch.compile`.
  Hint: Call a generator from inside of a non-generator Python function and compile that function instead.

  Developer debug context:

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0003.html
"""
PRINT_STACK = (
    StackEntry(path="/app/train.py", line=20, function="<module>", code="f(torch.ones(i), 2)"),
    StackEntry(path="/app/train.py", line=4, function="f", code='print("hello")'),
)


@pytest.mark.parametrize("text", [OLD, NEW], ids=["2.9", "2.13"])
def test_both_versions_give_the_same_fields(text: str) -> None:
    parsed = parse_break(text)
    assert (parsed.path, parsed.line, parsed.function) == ("/app/train.py", 4, "f")
    assert parsed.type == "Failed to trace builtin operator"
    assert parsed.explanation.startswith("Dynamo does not know how to trace builtin operator `print`")
    assert parsed.hints == (
        "Avoid calling builtin `print` with argument types ['str'].", "Please report an issue to PyTorch.",
    )
    assert parsed.context == "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
    assert parsed.gb_id == "GB0059"
    assert parsed.stack == PRINT_STACK
    assert not parsed.whole_frame


def test_an_explanation_may_have_several_paragraphs() -> None:
    parsed = parse_break(BRANCH)
    assert (parsed.type, parsed.gb_id, parsed.line) == ("Data-dependent branching", "GB0170", 6)
    assert parsed.explanation.endswith("gt = gt(sum_1, 0)")
    assert parsed.hints == ("Use `torch.cond` to express dynamic control flow.",)
    assert parsed.stack[-1].code == "if y.sum() > 0:"


def test_a_break_in_a_loop_skips_the_entire_frame() -> None:
    parsed = parse_break(LOOP)
    assert (parsed.type, parsed.gb_id, parsed.line, parsed.function) == (
        "Failed to trace builtin operator", "GB0059", 11, "loop",
    )
    assert len(parsed.hints) == 2
    assert parsed.whole_frame
    assert [entry.line for entry in parsed.stack] == [21, 11]


def test_a_frame_that_is_not_converted_is_placed_by_its_code_object() -> None:
    parsed = parse_break(NOT_CONVERTED)
    assert (parsed.path, parsed.line, parsed.function) == ("/app/train.py", 20, "generator")
    assert (parsed.type, parsed.gb_id) == ("Attempt to trace generator", "GB0003")
    assert parsed.context == ""
    assert parsed.whole_frame


def test_a_duplicate_without_its_stack_keeps_its_place() -> None:
    text = OLD.replace(
        "Graph break in", "Graph break (user stack suppressed due to duplicate graph break) in",
    ).split("User code")[0]
    parsed = parse_break(text)
    assert (parsed.path, parsed.line, parsed.stack, parsed.function) == ("/app/train.py", 4, (), "")
    assert parsed.gb_id == "GB0059"


def test_a_path_with_spaces_and_colons_is_read() -> None:
    parsed = parse_break("Graph break in user code at C:\\my code\\a:b.py:12\nGraph Break Reason: x\n")
    assert (parsed.path, parsed.line, parsed.type) == ("C:\\my code\\a:b.py", 12, "x")


@pytest.mark.parametrize("text", ["", "\n\n", "nothing of the kind"])
def test_text_without_any_field_gives_an_unknown_place(text: str) -> None:
    parsed = parse_break(text)
    assert (parsed.path, parsed.line, parsed.stack, parsed.gb_id, parsed.hints) == ("unknown", None, (), None, ())
    assert parsed.type == text.strip()


def test_a_stack_without_source_lines_has_no_code() -> None:
    text = 'User code traceback:\n  File "<string>", line 3, in f\n\nNoneType: None\n'
    assert parse_break(text).stack == (StackEntry(path="<string>", line=3, function="f"),)


def test_a_stack_is_read_outermost_first_without_its_markers() -> None:
    assert parse_stack(STACK) == PRINT_STACK
    assert parse_stack("") == ()


def test_a_stack_entry_may_lack_a_function() -> None:
    assert parse_stack('  File "a.py", line 10\n    for i in x:\n') == (
        StackEntry(path="a.py", line=10, function="", code="for i in x:"),
    )


LINES = [*NEW.splitlines(), *LOOP.splitlines(), *NOT_CONVERTED.splitlines()]


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=30), max_size=25))
def test_parsing_never_raises(lines: list[str]) -> None:
    parsed = parse_break("\n".join(lines))
    assert parsed.gb_id is None or parsed.gb_id.startswith("GB")
    assert parsed.line is None or parsed.line >= 0


@pytest.mark.parametrize("text", [OLD, NEW, BRANCH, LOOP, NOT_CONVERTED])
def test_truncated_text_gives_the_same_place_or_none(text: str) -> None:
    whole = parse_break(text)
    for end in range(0, len(text), 7):
        parsed = parse_break(text[:end])
        assert parsed.path in (whole.path, "unknown") or whole.path.startswith(parsed.path)
