"""Every event survives a round trip through its payload; a payload that cannot be read is kept as Unparsed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.recording.events import (
    COLUMNS,
    EVENT_TYPES,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    Recompile,
    StackEntry,
    Tap,
    Unparsed,
    from_payload,
    to_payload,
)
from torchtriage.recording.validation import LARGEST, YEAR_10000, AnyFloat, Time, field_types

texts = st.text(st.characters(), max_size=30)      # with lone surrogates: a file name need not be UTF-8
floats = st.floats(-LARGEST, LARGEST, exclude_min=True, exclude_max=True)
integers = st.integers(-LARGEST + 1, LARGEST - 1)
entries = st.builds(StackEntry, path=texts, line=integers, function=texts, code=texts)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts, int: integers, float: floats, bool: st.booleans(),
    Time: st.floats(0, YEAR_10000, exclude_max=True), AnyFloat: st.floats(allow_nan=False),
    str | None: st.none() | texts, int | None: st.none() | integers, float | None: st.none() | floats,
    bool | None: st.none() | st.booleans(),
    tuple[str, ...]: st.lists(texts, max_size=4).map(tuple),
    tuple[StackEntry, ...]: st.lists(entries, max_size=3).map(tuple),
}


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    return st.builds(kind, **{name: BY_TYPE[hint] for name, hint in field_types(kind).items()})


def all_subclasses(kind: type[Event]) -> set[type[Event]]:
    return {kind, *(c for sub in kind.__subclasses__() for c in all_subclasses(sub))}


def round_trip(event: Event) -> Event:
    return from_payload(event.kind, to_payload(event), **{c: getattr(event, c) for c in COLUMNS})


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("kind", EVENT_TYPES.values(), ids=EVENT_TYPES)
def test_an_event_survives_a_round_trip(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    assert round_trip(event) == event


def test_every_event_type_is_registered_under_its_own_kind() -> None:
    assert {cls.kind for cls in all_subclasses(Event)} - {""} == set(EVENT_TYPES)
    assert all(kind == cls.kind for kind, cls in EVENT_TYPES.items())


def test_fields_with_default_values_are_not_written() -> None:
    assert to_payload(CompileStart(compile_id="0/1", time=3.0, step=4, rank=0, pid=7)) == "{}"
    assert json.loads(to_payload(Tap(name="trace"))) == {"name": "trace"}


def test_a_stack_is_written_as_rows() -> None:
    event = Recompile(stack=(StackEntry(path="a.py", line=3, function="f", code="x"),), reasons=("k == 2",))
    assert json.loads(to_payload(event)) == {"stack": [["a.py", 3, "f", "x"]], "reasons": ["k == 2"]}


@pytest.mark.parametrize(("kind", "payload"), [
    ("hologram", "{}"),
    ("tap", '{"name": "x", "colour": "red"}'),
    ("tap", '{"time": 3.0}'),
    ("tap", "[]"),
    ("tap", '"text"'),
    ("tap", "3"),
    ("tap", "null"),
    ("tap", "{"),
    ("tap", ""),
    ("recompile", '{"stack": [["a.py", 3]]}'),
    ("recompile", '{"stack": 3}'),
    ("compile_end", '{"seconds": 1e308}'),
])
def test_a_payload_of_another_version_is_kept_as_unparsed(kind: str, payload: str) -> None:
    event = from_payload(kind, payload, time=5.0, step=2, rank=1, pid=9, compile_id="0/0")
    assert event == Unparsed(origin=f"event {kind}", text=payload, time=5.0, step=2, rank=1, pid=9, compile_id="0/0")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


@given(st.sampled_from([*EVENT_TYPES, "other"]), values)
def test_no_payload_raises(kind: str, payload: Any) -> None:
    assert isinstance(from_payload(kind, json.dumps(payload)), Event)


@pytest.mark.parametrize("time", [-1.0, 253_402_300_800, 1e308, float("nan"), float("inf"), 10**400, "now"])
def test_an_event_whose_time_has_no_date_is_unparsed(time: Any) -> None:
    assert from_payload("tap", "{}", time=time, pid=9) == Unparsed(origin="event tap", text="{}", pid=9)


def test_the_reason_of_a_break_is_its_type_and_explanation() -> None:
    assert GraphBreak(type="a", explanation="b").reason == "a: b"
    assert GraphBreak(type="a").reason == "a"


def test_the_defaults_of_a_compile_end_are_unknown() -> None:
    assert CompileEnd().seconds is None
    assert CompileEnd().suppress_errors is None
