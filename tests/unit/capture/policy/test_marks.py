"""The program's own marks are noted where they are made, and still do what they did."""

import sys
from types import ModuleType
from typing import Any

import pytest

from torchtriage.capture.policy import marks as shape_marks
from torchtriage.capture.policy.marks import CALLS, ShapeMarks
from torchtriage.capture.torch_private import base as torch_private
from torchtriage.capture.torch_private import shapes as torch_private_shapes


@pytest.fixture
def decorators() -> Any:
    found = ModuleType("torch._dynamo.decorators")

    def mark_dynamic(t: list[Any], index: Any, *, min: int | None = None) -> None:
        if index == 9:
            raise IndexError("no such dimension")
        t.append(index)

    def mark_static(t: list[Any], index: Any = None) -> str:
        return "static"

    found.mark_dynamic, found.mark_static = mark_dynamic, mark_static  # type: ignore[attr-defined]
    return found


@pytest.fixture
def marks(decorators: Any) -> ShapeMarks:
    marks = ShapeMarks()
    assert torch_private_shapes.wrap_marks(decorators, CALLS, marks.note) is not None
    return marks


def test_marks_are_counted_by_place_call_and_dimension(decorators: Any, marks: ShapeMarks) -> None:
    t: list[Any] = []
    for _ in range(3):
        line = sys._getframe().f_lineno + 1
        decorators.mark_dynamic(t, 0, min=2)
    decorators.mark_dynamic(t, index=[1, 2])
    assert decorators.mark_static(t) == "static"
    assert t == [0, 0, 0, [1, 2]]
    assert marks.facts()["marks"] == [
        {"path": __file__, "line": line, "call": "mark_dynamic", "dim": 0, "num": 3},
        {"path": __file__, "line": line + 1, "call": "mark_dynamic", "dim": 1, "num": 1},
        {"path": __file__, "line": line + 1, "call": "mark_dynamic", "dim": 2, "num": 1},
        {"path": __file__, "line": line + 2, "call": "mark_static", "dim": None, "num": 1},
    ]


def test_a_mark_that_fails_fails_as_before_and_is_not_counted(decorators: Any, marks: ShapeMarks) -> None:
    with pytest.raises(IndexError) as error:
        decorators.mark_dynamic([], 9)
    assert [entry.name for entry in error.traceback][1:] == ["mark_dynamic"]
    assert marks.facts() == {"marks": []}


def test_torchs_own_marks_are_not_the_programs(
    decorators: Any, marks: ShapeMarks, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_private, "is_torch_file", lambda path: path == __file__)
    decorators.mark_dynamic([], 0)
    assert marks.facts() == {"marks": []}


def test_dynamo_traces_torchs_own_function_or_refuses_ours_as_it_would_that(decorators: Any) -> None:
    decorators.mark_dynamic._dynamo_forbidden = True
    torch_private_shapes.wrap_marks(decorators, CALLS, lambda _: None)
    assert decorators.mark_static._torchdynamo_inline is decorators.mark_static.torchtriage_original
    assert decorators.mark_dynamic._dynamo_forbidden
    assert not hasattr(decorators.mark_dynamic, "_torchdynamo_inline")


def test_memory_is_bounded_and_known_marks_are_counted_on(
    decorators: Any, marks: ShapeMarks, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shape_marks, "MAX_MARKS", 1)
    for dim in (0, 1, 0):
        decorators.mark_dynamic([], dim)
    assert [(row["dim"], row["num"]) for row in marks.facts()["marks"]] == [(0, 2)]


def test_a_torch_without_the_functions_has_no_tap() -> None:
    assert torch_private_shapes.wrap_marks(ModuleType("empty"), CALLS, lambda _: None) is None


def test_taking_the_tap_away_puts_torchs_functions_back(decorators: Any) -> None:
    before = decorators.mark_dynamic
    undo = torch_private_shapes.wrap_marks(decorators, CALLS, lambda _: None)
    assert undo is not None
    assert decorators.mark_dynamic is not before
    undo()
    assert decorators.mark_dynamic is before
