"""What is marked: everything that varies, and what still recompiles after that."""

import re
from collections.abc import Collection
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchtriage.recording.events import Recompile
from torchtriage.recording.recording import Process, Recording
from torchtriage.shapes.runs.sizes import (
    ZERO_ONE,
    Mark,
    Marking,
    find_marks,
    recorded_sizes,
    sources_value,
    varying,
    with_marks,
)


def fact(source: str, dim: int | None, *values: int) -> dict[str, Any]:
    return {
        "path": "m.py",
        "line": 1,
        "function": "f",
        "source": source,
        "dim": dim,
        "values": {str(v): 1 for v in values},
        "num_values": len(values),
        "num_calls": len(values),
    }


def recording(facts: list[dict[str, Any]] = [], *reasons: str) -> Recording:  # noqa: B006  # never changed
    functions = [{"path": "m.py", "line": 1, "target": "f", "num_calls": 2}]
    events = (Recompile(function="f", reasons=reasons),) if reasons else ()
    return Recording(processes=(Process(facts={"sizes": facts, "functions": functions}, events=events),))


SIZE = "tensor '{}' size mismatch at index {}. expected 4, actual 5"


def test_graphs_of_one_frame_are_taken_together() -> None:
    found = recorded_sizes(recording([fact("L['x']", 0, 4), fact("L['x']", 0, 5, 4), fact("L['x']", 1, 3)]))
    assert [(s.dim, dict(s.values), s.num_values, s.num_calls) for s in found] == [
        (0, {"4": 2, "5": 1}, 2, 3),
        (1, {"3": 1}, 1, 1),
    ]
    assert [s.dim for s in varying(found)] == [0]


def test_all_varying_sizes_are_marked_in_one_run_if_nothing_recompiles() -> None:
    sizes = recorded_sizes(recording([fact("L['x']", 0, 4, 5), fact("L['y']", 0, 4, 5), fact("L['y']", 1, 3)]))
    asked: list[Collection[Mark]] = []
    found = find_marks(sizes, recording(), lambda marks: asked.append(set(marks)) or recording())
    assert found == Marking(marks=frozenset({("L['x']", 0), ("L['y']", 0)}), num_runs=1, new_reasons=[])
    assert asked == [{("L['x']", 0), ("L['y']", 0)}]


def test_what_a_reason_names_and_what_varies_only_now_is_added() -> None:
    first = [fact("L['kwargs']['ids']", 0, 4, 5), fact("L['kwargs']['mask']", 1, 7)]
    runs = iter([
        recording([*first, fact("L['z']", 0, 1, 2)], SIZE.format("kwargs['mask']", 1)),
        recording(first),
    ])
    found = find_marks(recorded_sizes(recording(first)), recording(), lambda marks: next(runs))
    assert found.marks == {("L['kwargs']['ids']", 0), ("L['kwargs']['mask']", 1), ("L['z']", 0)}
    assert (found.num_runs, found.is_complete) == (2, True)


def test_a_marked_size_that_recompiles_became_specialized() -> None:
    first = [fact("L['x']", 0, 4, 5)]
    found = find_marks(
        recorded_sizes(recording(first)), recording(), lambda marks: recording(first, SIZE.format("x", 0))
    )
    assert found.specialized == {("L['x']", 0): SIZE.format("x", 0)}
    assert not found.is_complete
    size = with_marks(recorded_sizes(recording(first)), found)[0]
    assert size.is_marked
    assert size.why_not == f"specialized to a constant ({SIZE.format('x', 0)})"


def test_an_equation_on_a_marked_size_counts_as_a_size_recompile() -> None:
    first = [fact("L['x']", 0, 4, 5)]
    found = find_marks(
        recorded_sizes(recording(first)),
        recording(),
        lambda marks: recording(first, "x.size()[0] == 4  # y = x.view(4)"),
    )
    assert list(found.specialized) == [("L['x']", 0)]


def test_the_search_ends_after_a_few_runs() -> None:
    names = iter("abcdefgh")
    found = find_marks(recorded_sizes(recording([fact("L['x']", 0, 4, 5)])), recording(),
                       lambda marks: recording([fact(f"L['{next(names)}']", 0, 4, 5)]))
    assert found.num_runs == 4


def test_recompile_reasons_that_the_sizes_had_hidden_are_listed() -> None:
    first = [fact("L['x']", 0, 4, 5)]
    found = find_marks(
        recorded_sizes(recording(first)), recording([], SIZE.format("x", 0), "x.requires_grad == False"),
        lambda marks: recording(first, "config.problem_type is None", "x.requires_grad == False"),
    )
    assert found.new_reasons == ["f: config.problem_type is None"]


def test_a_program_that_fails_under_the_marks_ends_the_search() -> None:
    found = find_marks(recorded_sizes(recording([fact("L['x']", 0, 4, 5)])), recording(), lambda marks: None)
    assert (found.marks, found.is_complete) == ({("L['x']", 0)}, False)


def test_a_size_of_one_gets_its_own_graph_even_if_marked() -> None:
    sizes = recorded_sizes(recording([fact("L['x']", 0, 1, 5)]))
    assert with_marks(sizes, Marking(marks=frozenset({("L['x']", 0)})))[0].why_not == ZERO_ONE


def test_entries_are_escaped_and_anchored_and_may_name_the_dimension() -> None:
    marks = {("L['x']", 1), ("L['x']", 0), ("L['n']", None)}
    assert sources_value(marks, with_dims=True) == r"L\['n'\]$,L\['x'\]$:0,L\['x'\]$:1"
    assert sources_value(marks, with_dims=False) == r"L\['n'\]$,L\['x'\]$"


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
def test_an_entry_matches_only_its_own_name(keys: list[str]) -> None:
    """As torch reads entries: spaces removed, commas split, `:N` cut off, and the rest matched from the start."""
    names = [f"L['d'][{key!r}]" for key in keys]
    entries = sources_value({(name, 0) for name in names}, with_dims=True).replace(" ", "").split(",")
    assert len(entries) == len(names)
    patterns = [entry.removesuffix(":0") for entry in entries]
    for name in names:
        assert sum(bool(re.match(pattern, name)) for pattern in patterns) == 1
        assert not any(re.match(pattern, f"{name}['more']") for pattern in patterns)
