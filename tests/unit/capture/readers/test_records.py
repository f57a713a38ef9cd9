"""Records of the structured trace become events; a record that cannot be read becomes Unparsed."""

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.capture.readers.reasons import KeptReasons, parse_reasons
from torchtriage.capture.readers.records import (
    ARTIFACTS,
    KINDS,
    NO_PAYLOAD,
    OUR_FOLDERS,
    Translator,
    compile_id_of,
    strip_launchers,
)
from torchtriage.recording.events import (
    CacheUse,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    GuardValue,
    LimitHit,
    Recompile,
    StackEntry,
    Unparsed,
)

APP = "/app/train.py"
REASON = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"
LIMIT_2_13 = {
    "fail_type": "Unsupported", "co_name": None, "duration_us": 477,
    "fail_reason": (
        "Dynamo recompile limit exceeded\n"
        "  Explanation: Dynamo attempted to recompile the code object too many times, exceeding the "
        "recompile_limit cache size limit (currently set to 3). Excessive recompilations can degrade performance.\n"
        "  Hint: consider increasing torch._dynamo.config.recompile_limit to an appropriate value.\n\n"
        "  Developer debug context: Limit type: recompile_limit\n"
    ),
}
LIMIT_2_9 = {
    "fail_type": "RecompileLimitExceeded", "fail_reason": "recompile_limit reached", "co_name": None,
    "dynamo_config": json.dumps({"recompile_limit": 8, "accumulated_recompile_limit": 256}),
}


def ids(frame: int, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"frame_id": frame, "frame_compile_id": number, "attempt": 0, **more}


def interned(path: str = APP, index: int = 1) -> tuple[dict[str, Any], None]:
    return {"str": [path, index]}, None


def start(frame: int = 0, number: int = 0, name: str = "f", line: int = 3) -> tuple[dict[str, Any], None]:
    stack = [
        {"line": 20, "name": "<module>", "filename": 1, "loc": "f(x)"}, {"line": line, "name": name, "filename": 1},
    ]
    return {"dynamo_start": {"stack": stack}, **ids(frame, number)}, None


def artifact(name: str, payload: str | None, frame: int = 0, number: int = 0) -> tuple[dict[str, Any], str | None]:
    return {"artifact": {"name": name, "encoding": "string"}, **ids(frame, number)}, payload


def reasons(payload: str, frame: int = 0, number: int = 1) -> tuple[dict[str, Any], str | None]:
    return artifact("recompile_reasons", payload, frame, number)


def metrics(
    frame: int = 0, number: int = 0, kind: str = "compilation_metrics", **fields: Any,
) -> tuple[dict[str, Any], None]:
    return {kind: fields, **ids(frame, number)}, None


def fed(*records: tuple[dict[str, Any], str | None], **kwargs: Any) -> list[Event]:
    translator = Translator(**kwargs)
    events = []
    for metadata, payload in records:
        events.extend(translator.feed(metadata, payload))
    return [*events, *translator.finish()]


FRAME = (
    StackEntry(path=APP, line=20, function="<module>", code="f(x)"),
    StackEntry(path=APP, line=3, function="f"),
)


def test_a_start_has_its_place_its_stack_and_its_columns() -> None:
    translator = Translator()
    list(translator.feed(*interned()))
    [event] = translator.feed(*start(2, 1), time=5.0, step=7, pid=9)
    assert event == CompileStart(path=APP, line=3, function="f", stack=FRAME, compile_id="2/1", time=5.0, step=7, pid=9)


def test_the_rank_of_a_record_is_the_rank_of_its_event() -> None:
    [event] = fed(({"dynamo_start": {"stack": []}, **ids(0, rank=3)}, None))
    assert event.rank == 3


def test_the_callers_that_torch_leaves_out_are_put_before_the_frame() -> None:
    outer, caller = (StackEntry(path="/app/other.py", line=line, function="main") for line in (9, 5))
    translator = Translator()
    list(translator.feed(*interned()))
    [event] = translator.feed(*start(), (outer, caller))
    assert isinstance(event, CompileStart)
    assert event.stack == (FRAME[0], outer, caller, FRAME[1])
    runpy = StackEntry(path="/usr/lib/python3.11/runpy.py", line=88, function="_run_code")
    [event] = translator.feed(*start(), (runpy, StackEntry(path=APP, line=20, function="<module>")))
    assert event.stack == FRAME


FAILED_IN_LOG = """Traceback (most recent call last):
  File "/v/torch/_dynamo/convert_frame.py", line 2100, in _compile
torch._dynamo.exc.InternalTorchDynamoError: AttributeError: no __dict__

from user code:
   File "/app/x.py", line 23, in training_step
    self.log("loss", loss)
  File "/v/inspect.py", line 7, in signature
    sig = obj.__signature__

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


def test_a_failed_compile_has_the_lines_of_its_traceback() -> None:
    error = ({"artifact": {"name": "dynamo_error"}, **ids(0)}, FAILED_IN_LOG)
    for line, expected in ((7, [("/app/x.py", 23), ("/v/inspect.py", 7)]), (8, [("/v/inspect.py", 8)])):
        failed = {"fail_type": "E", "fail_user_frame_filename": "/v/inspect.py", "fail_user_frame_lineno": line}
        [event] = fed(error, ({"compilation_metrics": failed, **ids(0)}, None))
        assert [(entry.path, entry.line) for entry in event.stack] == expected


def test_a_failed_compile_has_the_line_it_failed_at() -> None:
    metrics = {"fail_type": "E", "fail_user_frame_filename": "/app/x.py", "fail_user_frame_lineno": 7}
    [event] = fed(({"compilation_metrics": metrics, **ids(0)}, None))
    assert event.stack == (StackEntry(path="/app/x.py", line=7, function=""),)


def test_a_file_name_interned_before_we_listened_is_looked_up() -> None:
    [event] = fed(start(), lookup_string={1: "/early.py"}.get)
    assert (event.path, event.line) == ("/early.py", 3)


def test_an_unknown_file_name_keeps_its_number() -> None:
    [event] = fed(start())
    assert event.path == "<string 1>"


def test_a_file_name_need_not_be_interned() -> None:
    [event] = fed(({"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": APP}]}, **ids(0)}, None))
    assert event.path == APP


@pytest.mark.parametrize("path", [
    "<frozen runpy>", "/usr/lib/python3.11/runpy.py", r"C:\Python311\Lib\runpy.py",
    *(os.path.join(folder, "x.py") for folder in OUR_FOLDERS),
])
def test_frames_of_torchtriage_and_runpy_are_removed_from_the_stack(path: str) -> None:
    assert strip_launchers((StackEntry(path=path, line=1, function="x"), *FRAME)) == FRAME


@pytest.mark.parametrize(
    "path", ["/home/me/runpy/train.py", "/app/my_runpy.py", "/app/runpy_tools.py", "/home/me/torchtriage/train.py"],
)
def test_a_file_of_the_user_may_have_any_name(path: str) -> None:
    entry = StackEntry(path=path, line=1, function="x")
    assert strip_launchers((entry,)) == (entry,)


def test_a_break_is_parsed_and_placed() -> None:
    payload = (
        f"Graph break in user code at {APP}:4\nGraph Break Reason: Failed to trace builtin operator\n"
        "  Explanation: print\n\n"
        'User code traceback:\n  File "<frozen runpy>", line 198, in _run\n'
        f'  File "{APP}", line 20, in <module>\n    f(x)\n  File "{APP}", line 4, in f\n'
    )
    [event] = fed(artifact("dynamo_graph_break_reason", payload, 0, 2))
    assert isinstance(event, GraphBreak)
    assert (event.path, event.line, event.function, event.compile_id) == (APP, 4, "f", "0/2")
    assert (event.type, event.explanation) == ("Failed to trace builtin operator", "print")
    assert [entry.line for entry in event.stack] == [20, 4]


def test_a_break_whose_stack_begins_at_its_frame_gets_the_callers() -> None:
    """What 2.9 writes when a break skips the whole frame."""
    payload = (
        f'Graph break: skip: from user code at:\n  File "{APP}", line 5, in f\n    print(1)\n\n'
        "Traceback (most recent call last):\n"
    )
    *_, event = fed(interned(), start(), artifact("dynamo_graph_break_reason", payload, 0, 0))
    assert (event.line, event.whole_frame) == (5, True)
    assert event.stack == (FRAME[0], StackEntry(path=APP, line=5, function="f", code="print(1)"))


def test_a_break_without_a_place_is_at_the_frame_that_was_compiled() -> None:
    """What 2.9 writes when Dynamo gives up after the last line was traced."""
    payload = (
        "Graph break: skip: from user code at:\n\n"
        "Traceback (most recent call last):\ntorch._dynamo.exc.Unsupported: refused\n"
    )
    *_, event = fed(interned(), start(), artifact("dynamo_graph_break_reason", payload, 0, 0))
    assert event == GraphBreak(
        path=APP, line=3, function="f", stack=FRAME, type="refused", whole_frame=True, compile_id="0/0",
    )


@pytest.mark.parametrize(("payload", "expected"), [
    (REASON, (REASON,)),
    (f"{REASON}\n  User stack:\n    f(x)", (f"{REASON}\n  User stack:\n    f(x)",)),
    (json.dumps(REASON), (REASON,)),
    (json.dumps([REASON]), (REASON,)),
    (json.dumps([REASON, "0/1: k == 2 "], indent=0), (REASON, "0/1: k == 2")),
    ("", ()),
    ("[]", ()),
    ("null", ()),
    ('["a", null]', ("a", "None")),
    ("k == 3", ("k == 3",)),
])
def test_reasons_come_bare_as_a_string_or_as_a_list(payload: str, expected: tuple[str, ...]) -> None:
    assert parse_reasons(payload) == KeptReasons(texts=expected)


def test_a_recompile_is_an_event_once_its_compile_starts() -> None:
    found = fed(interned(), start(), reasons(REASON), start(0, 1))
    assert [type(event) for event in found] == [CompileStart, Recompile, CompileStart]
    assert found[1] == Recompile(path=APP, line=3, function="f", stack=FRAME, reasons=(REASON,), compile_id="0/1")


def test_a_recompile_without_a_start_is_an_event_at_its_end() -> None:
    found = fed(interned(), start(), reasons(REASON), metrics(0, 1, duration_us=2_000_000))
    assert [type(event) for event in found] == [CompileStart, Recompile, CompileEnd]
    assert (found[1].path, found[1].compile_id) == (APP, "0/1")


def test_a_recompile_in_progress_is_an_event_at_the_end_of_the_trace() -> None:
    found = fed(reasons(REASON))
    assert found == [Recompile(reasons=(REASON,), compile_id="0/1")]


@pytest.mark.parametrize(("limit", "value"), [(LIMIT_2_13, 3), (LIMIT_2_9, 8)], ids=["2.13", "2.9"])
def test_a_recompile_refused_at_the_limit_is_only_a_limit(limit: dict[str, Any], value: int) -> None:
    found = fed(interned(), start(), reasons(REASON), metrics(0, 1, **limit))
    assert [type(event) for event in found] == [CompileStart, LimitHit]
    assert found[1] == LimitHit(
        path=APP, line=3, function="f", stack=FRAME, reasons=(REASON,), limit_name="recompile_limit", limit=value,
        compile_id="0/1",
    )


@pytest.mark.parametrize(("limit", "name", "value"), [
    ({**LIMIT_2_9, "fail_reason": "accumulated_recompile_limit reached"}, "accumulated_recompile_limit", 256),
    ({"fail_type": "CacheSizeLimitExceeded", "fail_reason": "cache_size_limit reached"}, "cache_size_limit", None),
    ({**LIMIT_2_13, "fail_reason": LIMIT_2_13["fail_reason"].replace("recompile_limit", "accumulated_recompile_limit")},
     "accumulated_recompile_limit", 3),
    ({**LIMIT_2_9, "dynamo_config": "garbage"}, "recompile_limit", None),
])
def test_the_limit_in_force_is_named(limit: dict[str, Any], name: str, value: int | None) -> None:
    [hit] = [e for e in fed(interned(), start(), metrics(0, 1, **limit)) if isinstance(e, LimitHit)]
    assert (hit.limit_name, hit.limit, hit.reasons) == (name, value, ())


def test_a_failure_that_mentions_the_limit_further_down_is_not_a_limit() -> None:
    [end] = fed(metrics(fail_type="Unsupported", fail_reason="graph break in loop\n  Hint: see recompile_limit"))
    assert isinstance(end, CompileEnd)


def test_the_end_of_a_compile_has_its_times_and_outcome() -> None:
    found = fed(interned(), start(), metrics(
        duration_us=1_500_000, aot_autograd_cumulative_compile_time_us=700_000,
        inductor_cumulative_compile_time_us=400_000,
        fail_type="Boom", fail_reason="x" * 3000, has_guarded_code=False, graph_op_count=4, guard_count=9,
        config_suppress_errors=True,
    ))
    end = found[-1]
    assert isinstance(end, CompileEnd)
    assert (end.seconds, end.backend_seconds, end.inductor_seconds) == (1.5, 0.7, 0.4)
    assert (end.fail_type, len(end.fail_reason or "")) == ("Boom", 2000)
    assert (
        end.produced_code, end.num_graph_ops, end.num_guards, end.suppress_errors, end.is_backward,
    ) == (False, 4, 9, True, False)
    assert (end.path, end.line, end.function, end.stack) == (APP, 3, "f", ())


def test_times_that_torch_does_not_give_are_unknown() -> None:
    [end] = fed(metrics(duration_us=None))
    assert isinstance(end, CompileEnd)
    assert (end.seconds, end.suppress_errors) == (None, None)


def test_an_end_without_a_start_is_placed_by_its_code_object() -> None:
    [end] = fed(metrics(co_filename=APP, co_firstlineno=8, co_name="g"))
    assert (end.path, end.line, end.function) == (APP, 8, "g")


def test_a_backward_compile_has_a_separate_end() -> None:
    found = fed(interned(), start(), metrics(kind="bwd_compilation_metrics", duration_us=1_000_000))
    end = found[-1]
    assert isinstance(end, CompileEnd)
    assert (end.is_backward, end.seconds, end.function) == (True, 1.0, "f")


def test_a_symbol_has_the_value_of_its_source() -> None:
    [event] = fed(({"create_symbol": {"symbol": "s0", "val": 5, "source": "L['x'].size()[0]"}, **ids(0, 1)}, None))
    assert event == GuardValue(source="L['x'].size()[0]", value="5", is_dynamic=True, compile_id="0/1")


GUARDS = (
    "| +- EQUALS_MATCH: L['k'] == 3          # y = x * k\n"
    "| +- EQUALS_MATCH: L['name'] == 'a b'\n"
    "| +- TYPE_MATCH: L['k']\n"
)


def test_guards_have_the_new_values_of_a_recompile() -> None:
    found = fed(({"dynamo_cpp_guards_str": {}, **ids(0, 2)}, GUARDS))
    assert found == [
        GuardValue(source="L['k']", value="3", compile_id="0/2"),
        GuardValue(source="L['name']", value="'a b'", compile_id="0/2"),
    ]


@pytest.mark.parametrize("where", [ids(0, 0), {}, ids(4, 0, compiled_autograd_id=2)])
def test_guards_of_a_first_compile_are_ignored(where: dict[str, Any]) -> None:
    assert fed(({"dynamo_cpp_guards_str": {}, **where}, GUARDS)) == []


def test_the_number_of_guard_values_is_bounded() -> None:
    guards = "\n".join(f"EQUALS_MATCH: L['k{i}'] == {i}" for i in range(1000))
    assert len(fed(({"dynamo_cpp_guards_str": {}, **ids(0, 1)}, guards))) == 32


@pytest.mark.parametrize(("name", "cache", "outcome"), [
    ("fx_graph_cache_hit", "fx_graph", "hit"), ("fx_graph_cache_miss", "fx_graph", "miss"),
    ("aotautograd_cache_bypass", "aotautograd", "bypass"),
])
def test_a_cache_lookup_has_its_outcome(name: str, cache: str, outcome: str) -> None:
    [event] = fed(artifact(name, "why " + "x" * 1000))
    assert isinstance(event, CacheUse)
    assert (event.cache, event.outcome) == (cache, outcome)
    assert len(event.reason) == (500 if outcome == "bypass" else 0)


@pytest.mark.parametrize(("payload", "reason"), [
    (
        json.dumps({"cache_bypass_reason": "Unsupported target f", "cache_bypass_traceback": ["x"] * 999}),
        "Unsupported target f",
    ),
    (json.dumps({"key": "abc"}), '{"key": "abc"}'), ("[1]", "[1]"), ("{broken", "{broken"),
])
def test_a_bypassed_cache_has_its_reason(payload: str, reason: str) -> None:
    [event] = fed(artifact("aotautograd_cache_bypass", payload))
    assert isinstance(event, CacheUse)
    assert event.reason == reason


@pytest.mark.parametrize("metadata", [
    {"chromium_event": {}, **ids(0)}, {"dynamo_output_graph": {}}, {"artifact": {"name": "before_pre_grad_graph"}},
    {"from_the_future": 3}, {},
])
def test_other_kinds_of_records_are_ignored(metadata: dict[str, Any]) -> None:
    assert fed((metadata, "payload")) == []


@pytest.mark.parametrize("metadata", [
    {"dynamo_start": None}, {"dynamo_start": {"stack": 3}}, {"dynamo_start": {"stack": [{}]}}, {"artifact": {}},
    {"artifact": None},
    {"artifact": {"name": []}}, {"compilation_metrics": 3}, {"bwd_compilation_metrics": None},
    {"create_symbol": {"val": 3}}, {"str": 3},
    {"str": [1]}, {"dynamo_start": {"stack": [{"line": "many", "name": "f", "filename": 1}]}},
    {"dynamo_start": {"stack": [{"line": float("inf"), "name": "f", "filename": 1}]}},
    {"compilation_metrics": {"duration_us": 10**400}},
])
def test_a_record_that_cannot_be_read_is_unparsed(metadata: dict[str, Any]) -> None:
    [event] = fed(({**metadata, **ids(0, 1)}, None))
    assert isinstance(event, Unparsed)
    assert event.origin == "trace"
    assert str(next(iter(metadata))) in event.text


@pytest.mark.parametrize("name", ["recompile_reasons", "fx_graph_cache_bypass"])
def test_a_payload_nested_too_deeply_is_unparsed(name: str) -> None:
    [event] = fed(({"artifact": {"name": name}, **ids(0, 1)}, "[" * 90_000))
    assert isinstance(event, Unparsed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["name", "stack", "line", "filename", "fail_type"]), inner,
    ),
)


records_of_any_form = st.tuples(
    st.dictionaries(st.sampled_from([*sorted(KINDS), "frame_id", "frame_compile_id", "rank"]), json_values),
    st.none() | st.text(max_size=20),
)


@settings(max_examples=50)
@given(st.lists(records_of_any_form, max_size=4))
def test_translating_never_raises(records: list[tuple[dict[str, Any], str | None]]) -> None:
    assert all(isinstance(event, Event) for event in fed(*records))


@pytest.mark.parametrize(("metadata", "expected"), [
    (ids(0, 1), "0/1"), (ids(12, 3, compiled_autograd_id=2), "!2/12/3"), ({"compiled_autograd_id": 4}, "!4"),
    ({}, None),
])
def test_a_compile_id_is_written_as_torch_writes_it(metadata: dict[str, Any], expected: str | None) -> None:
    assert compile_id_of(metadata) == expected


def test_artifacts_without_payload_are_among_the_artifacts() -> None:
    assert NO_PAYLOAD < ARTIFACTS
    assert "artifact" in KINDS


def test_memory_does_not_grow_with_compiles_of_the_same_frames() -> None:
    translator = Translator()
    for number in range(500):
        for record in (
            interned(), start(number % 3, number), reasons(REASON, number % 3, number + 1),
            metrics(number % 3, number + 1),
        ):
            list(translator.feed(*record))
    assert max(len(translator._frames), len(translator._strings), len(translator._pending)) <= 3
