"""A shape study in a recording: it is read completely or not at all, and findings about sizes cite its measurements."""

import dataclasses
import importlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporters.study_samples import ALL, a_policy, clear_win, failures, nothing_varies, refusal
from tests.unit.samples import a_finding, a_process, a_recording
from torchtriage.diagnosis.report import build_report
from torchtriage.diagnosis.shape_study import linked_to_study, study_of
from torchtriage.findings import catalogue, shape_study
from torchtriage.findings.model import Evidence, Location
from torchtriage.findings.report import SHAPES
from torchtriage.findings.shape_study import DECIDED_BY_SHAPES, Advice, ShapeStudy
from torchtriage.findings.tap_state import SHAPE_STUDY, TapState, TapStatus
from torchtriage.recording import reader
from torchtriage.recording.events import CompileEnd, CompileStart, Recompile

FORMS = ("terminal", "json", "markdown", "html")


def as_read(study: ShapeStudy) -> dict[str, Any]:
    """As the reader of a recording hands it on."""
    data: dict[str, Any] = json.loads(json.dumps(study.to_dict()))
    return data


def not_read(problem: str) -> TapState:
    return TapState(name=SHAPE_STUDY, status=TapStatus.ABSENT, detail=problem)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_a_study_is_read_completely(make: Any) -> None:
    study, unread = study_of(a_recording(shapes=as_read(make())))
    assert unread == []
    assert study is not None
    assert as_read(study) == as_read(make())


def test_a_recording_without_a_study_has_none() -> None:
    assert study_of(a_recording()) == (None, [])


@pytest.mark.parametrize("data", [
    [], "x", 3, {}, {"schema": 1}, {"schema": 1, "policies": [], "advice": {}},
    {**as_read(clear_win()), "policies": None}, {**as_read(clear_win()), "policies": [{"name": 1}]},
    {**as_read(clear_win()), "policies": [{"name": "x", "total_seconds": {"middle": "long"}}]},
    {**as_read(clear_win()), "policies": [{"name": "x", "total_seconds": 3}]},
    {**as_read(clear_win()), "num_planned": "many"}, {**as_read(clear_win()), "num_units": None},
    {**as_read(clear_win()), "by_function": {"f": 3}}, {**as_read(clear_win()), "notes": [3]},
    {**as_read(clear_win()), "unit": 7}, {**as_read(clear_win()), "sizes": [{"path": "x"}]},
    {**as_read(clear_win()), "num_units": True},
    {**as_read(clear_win()), "num_units": 10**400}, {**as_read(clear_win()), "seconds_spent": 10**400},
], ids=lambda value: str(value)[:24])
def test_a_damaged_study_is_reported_and_never_raises(data: Any) -> None:
    report = build_report(a_recording(shapes=data))
    assert report.shapes is None
    [line] = [tap.detail for tap in report.not_seen if tap.name == SHAPE_STUDY]
    assert "damaged" in line or "schema" in line


def test_a_damaged_study_names_the_field() -> None:
    damaged = as_read(clear_win())
    damaged["policies"][1]["total_seconds"]["low"] = "long"
    assert study_of(a_recording(shapes=damaged)) == (None, [not_read(
        "its file is damaged: study.policies[1].total_seconds.low is a string, not an integer of 64 bits; measure again"
    )])


def test_fields_that_a_later_version_added_are_ignored() -> None:
    later = as_read(clear_win())
    later["advice"]["later"] = later["policies"][0]["later"] = later["later"] = 1
    study, unread = study_of(a_recording(shapes=later))
    assert unread == []
    assert study is not None
    assert as_read(study) == as_read(clear_win())


def every_place(data: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON document, the document itself included."""
    places = [place]
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        places += every_place(value, (*place, key))
    return places


def with_value(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[place[0]] = with_value(data[place[0]], place[1:], value)
    return copy


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=3), values, max_size=2),
    max_leaves=3,
)


@given(make=st.sampled_from(list(ALL.values())), draw=st.data(), value=ANYTHING)
def test_no_value_in_any_field_raises(make: Any, draw: st.DataObject, value: Any) -> None:
    whole = as_read(make())
    place = draw.draw(st.sampled_from(every_place(whole)))
    report = build_report(a_recording(shapes=with_value(whole, place, value)))
    problems = [tap.detail for tap in report.not_seen if tap.name == SHAPE_STUDY]
    if report.shapes is None:
        assert problems or (value is None and not place)
    for form in FORMS:
        importlib.import_module(f"torchtriage.reporters.{form}").render(report)


def test_a_study_of_a_newer_version_says_so() -> None:
    assert study_of(a_recording(shapes={**as_read(clear_win()), "schema": 2})) == (None, [
        not_read("a shape study of schema 2, this torchtriage reads 1; read it with the version that wrote it"),
    ])


def test_an_unreadable_study_file_is_reported() -> None:
    assert study_of(a_recording(shapes_problem="cannot read shapes.json: x")) == (
        None, [not_read("cannot read shapes.json: x")],
    )


def test_the_reader_looks_where_the_study_is_written() -> None:
    assert reader.STUDY_FILE == shape_study.STUDY_FILE


def note_of(study: ShapeStudy, **fields: Any) -> str:
    [finding] = linked_to_study([a_finding("TT202", **fields)], study)
    return finding.evidence.notes[-1]


def test_a_finding_about_sizes_cites_the_measurement() -> None:
    assert note_of(clear_win()) == (
        "measured: dynamic=True is 3,784x faster than the unmodified program over 100,000 calls (estimated); see shapes"
    )
    observed = clear_win(policies=(a_policy("as written", 12.4), a_policy("dynamic=True", 4.0)), num_planned=512)
    assert note_of(observed) == (
        "measured: dynamic=True is 3.1x faster than the unmodified program over 512 calls (observed); see shapes"
    )
    assert note_of(nothing_varies()) == (
        "measured: 1 other shape policy, none faster than the unmodified program; see shapes"
    )
    alone = clear_win(
        policies=(a_policy("as written"), a_policy("marked", failed="x")), advice=Advice(policy="as written"),
    )
    assert note_of(alone) == "measured: no other shape policy could be measured; see shapes"
    assert note_of(refusal()) == "measured: no shape policy is clearly the fastest; see shapes"
    assert note_of(failures()) == "measured: mixed is the fastest; see shapes"


@pytest.mark.parametrize(("function", "words"), [
    ("decode", "mixed is the fastest, dynamic=True for decode"), ("code", "mixed is the fastest"),
    (None, "mixed is the fastest"),
])
def test_a_finding_names_the_separate_policy_of_its_function(function: str | None, words: str) -> None:
    assert note_of(
        failures(), location=Location(path="/a.py", line=3, function=function),
    ) == f"measured: {words}; see shapes"


def test_only_findings_that_a_policy_affects_are_linked_and_keep_their_notes() -> None:
    before = [
        a_finding(code, related=("abc",), evidence=Evidence(notes=("a note",))) for code in ("TT202", "TT101", "TT301")
    ]
    size, other, limit = linked_to_study(before, clear_win())
    assert other == before[1]
    for finding in (size, limit):
        assert finding.related == ("abc", SHAPES)
        assert finding.evidence.notes[0] == "a note"
    assert linked_to_study(before, None) == before


def test_a_report_shows_the_study_and_links_its_findings() -> None:
    place = {"path": "/app/decode.py", "line": 12, "function": "decode"}
    reason = "tensor 'cache' size mismatch at index 2. expected {}, actual {}"
    events = [CompileStart(**place, compile_id="0/0"), CompileEnd(**place, compile_id="0/0", seconds=1.0)]
    for n in range(1, 5):
        events.append(Recompile(**place, compile_id=f"0/{n}", reasons=(reason.format(99 + n, 100 + n),)))
    report = build_report(a_recording(a_process(*events), shapes=as_read(clear_win())))
    assert report.shapes is not None
    [finding] = [f for f in report.findings if f.code == "TT202"]
    assert SHAPES in finding.related
    assert finding.evidence.notes[-1].startswith("measured: dynamic=True")


def test_every_rule_that_depends_on_a_policy_says_how_to_measure() -> None:
    for code in DECIDED_BY_SHAPES:
        assert "`torchtriage shapes" in catalogue.rule(code).page, code


def test_a_study_survives_being_written_and_read() -> None:
    """A field that is added to a study, and forgotten in from_dict, would break reports of recordings."""
    study = ShapeStudy.from_dict(as_read(clear_win()))
    assert {f.name for f in dataclasses.fields(ShapeStudy)} | {"schema"} == set(as_read(study))
