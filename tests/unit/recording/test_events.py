"""Every event comes back from the recording as it went in; what a later version wrote is kept as it stands."""

import dataclasses
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
from torchtriage.recording.validation import AnyFloat

texts = st.text(st.characters(), max_size=30)      # lone surrogates too: a file name need not be UTF-8
floats = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-2**63 + 1, 2**63 - 1)
ANY_FLOAT = str(AnyFloat)     # a measured value, which may be infinite
entries = st.builds(StackEntry, path=texts, line=integers, function=texts, code=texts)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": texts, "int": integers, "float": floats, ANY_FLOAT: st.floats(allow_nan=False),
    "bool": st.booleans(), "str | None": st.none() | texts,
    "int | None": st.none() | integers, "float | None": st.none() | floats, "bool | None": st.none() | st.booleans(),
    "tuple[str, ...]": st.lists(texts, max_size=4).map(tuple), "tuple[StackEntry, ...]": st.lists(entries, max_size=3).map(tuple),
}


def type_name(field: "dataclasses.Field[Any]") -> str:
    name = field.type.__name__ if isinstance(field.type, type) and not hasattr(field.type, "__args__") else str(field.type)
    return name.replace("torchtriage.recording.events.", "")


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    return st.builds(kind, **{f.name: BY_TYPE[type_name(f)] for f in dataclasses.fields(kind)})


def all_subclasses(kind: type[Event]) -> set[type[Event]]:
    return {kind, *(c for sub in kind.__subclasses__() for c in all_subclasses(sub))}


def round_trip(event: Event) -> Event:
    return from_payload(event.kind, to_payload(event), **{c: getattr(event, c) for c in COLUMNS})


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("kind", EVENT_TYPES.values(), ids=EVENT_TYPES)
def test_every_event_comes_back_as_it_was(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    assert round_trip(event) == event


def test_every_event_type_is_registered_under_its_own_kind() -> None:
    assert {cls.kind for cls in all_subclasses(Event)} - {""} == set(EVENT_TYPES)
    assert all(kind == cls.kind for kind, cls in EVENT_TYPES.items())


def test_an_event_takes_no_more_room_than_it_has_to_say() -> None:
    assert to_payload(CompileStart(compile_id="0/1", time=3.0, step=4, rank=0, pid=7)) == "{}"
    assert json.loads(to_payload(Tap(name="trace"))) == {"name": "trace"}


def test_a_stack_is_kept_as_rows() -> None:
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
])
def test_what_a_later_version_wrote_is_kept_as_it_stands(kind: str, payload: str) -> None:
    event = from_payload(kind, payload, time=5.0, step=2, rank=1, pid=9, compile_id="0/0")
    assert event == Unparsed(origin=f"event {kind}", text=payload, time=5.0, step=2, rank=1, pid=9, compile_id="0/0")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


@given(st.sampled_from([*EVENT_TYPES, "other"]), values)
def test_no_payload_raises(kind: str, payload: Any) -> None:
    assert isinstance(from_payload(kind, json.dumps(payload)), Event)


def test_the_reason_of_a_break_is_its_type_and_explanation() -> None:
    assert GraphBreak(type="a", explanation="b").reason == "a: b"
    assert GraphBreak(type="a").reason == "a"


def test_a_compile_end_says_nothing_it_was_not_told() -> None:
    assert CompileEnd().seconds is None
    assert CompileEnd().suppress_errors is None
