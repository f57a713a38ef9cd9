"""TT3xx: each rule speaks when it should, and is silent when it should be."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.samples import a_process
from torchtriage.diagnosis import coverage
from torchtriage.diagnosis.coverage import COLD_START_SECONDS, busy_seconds
from torchtriage.findings.model import CostKind, Finding, OwnerKind, Severity
from torchtriage.recording.events import (
    CacheUse,
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    FrameSkipped,
    GraphBreak,
    LimitHit,
    Recompile,
    StackEntry,
)
from torchtriage.recording.recording import Process

APP = "/app/train.py"
F: dict[str, Any] = {"path": APP, "line": 3, "function": "f"}
G: dict[str, Any] = {"path": APP, "line": 30, "function": "g"}
FACTS: dict[str, Any] = {"your_roots": ["/app"], "end": 100.0}
CALL = CompileCall(path=APP, line=31, function="main", target="f", target_path=APP, target_line=3)
Rule = Callable[[Process], Iterator[Finding]]


def found(rule: Rule, *events: Event, **facts: Any) -> list[Finding]:
    return list(rule(a_process(*events, **{**FACTS, **facts})))


def the_one(rule: Rule, *events: Event, **facts: Any) -> Finding:
    [finding] = found(rule, *events, **facts)
    return finding


# TT301

LIMIT = LimitHit(**F, compile_id="0/8", limit=8, step=96, reasons=("0/7: k == 2  # y = x * k", "0/6: k == 1"))


def test_a_frame_at_its_limit_is_told_with_the_calls_that_ran_eager() -> None:
    counted = {"eager": 412, "misses": 415, "recompiles": 3, "hits": 9}
    finding = the_one(coverage.recompile_limit_hit, LIMIT, CompileEnd(**F, compile_id="0/0", seconds=2.5), eager_calls=counted, rank=1)
    assert finding.title == "f hit its recompile limit (8): 412 calls ran eager since step 96"
    assert (finding.code, finding.severity) == ("TT301", Severity.P1)
    assert finding.cause.endswith("(torch._dynamo.config.recompile_limit); the last guard that failed: 0/7: k == 2")
    assert (finding.cost.seconds, finding.cost.kind) == (2.5, CostKind.OBSERVED)
    assert (finding.steps, finding.ranks, finding.evidence.compile_ids) == ((96,), (1,), ("0/8",))
    assert "415 guard misses, 3 of them recompiled, 9 hits" in finding.evidence.notes[0]


def test_without_the_meter_the_eager_calls_are_not_counted_and_that_is_said() -> None:
    finding = the_one(coverage.recompile_limit_hit, LimitHit(**F))
    assert finding.title == "f hit its recompile limit: later calls may run eager (not counted)"
    assert finding.cost.kind is CostKind.NOT_MEASURED
    assert finding.steps == ()


def test_with_two_frames_at_their_limit_the_calls_belong_to_the_process() -> None:
    two = found(coverage.recompile_limit_hit, LIMIT, LimitHit(**G), eager_calls={"eager": 5, "misses": 5, "recompiles": 0, "hits": 0})
    assert [finding.location.function for finding in two] == ["f", "g"]
    assert all("5 frame executions ran eager in this process" in finding.title for finding in two)
    assert all("2 frames are at their limit" in finding.evidence.notes[-1] for finding in two)


def test_a_library_frame_keeps_its_own_name_at_the_users_line() -> None:
    stack = (StackEntry(path=APP, line=40, function="train"), StackEntry(path="/v/site-packages/lib/m.py", line=7, function="attend"))
    hit = LimitHit(path="/v/site-packages/lib/m.py", line=7, function="attend", stack=stack, limit=8)
    finding = the_one(coverage.recompile_limit_hit, hit)
    assert finding.title.startswith("attend hit its recompile limit (8)")
    assert (finding.location.function, finding.location.line) == ("train", 40)


def test_a_frame_that_is_refused_again_and_again_is_one_finding() -> None:
    finding = the_one(coverage.recompile_limit_hit, *[LIMIT] * 40)
    assert finding.evidence.num_events == 40
    assert len(finding.evidence.compile_ids) == 20


def test_the_accumulated_limit_is_named() -> None:
    finding = the_one(coverage.recompile_limit_hit, LimitHit(**F, limit_name="accumulated_recompile_limit", limit=256))
    assert "f hit the accumulated recompile limit (256)" in finding.title
    assert "torch._dynamo.config.accumulated_recompile_limit" in finding.fix.text


def test_recompiles_below_the_limit_are_not_told_here() -> None:
    assert found(coverage.recompile_limit_hit, CompileStart(**F), *[Recompile(**F)] * 7) == []


# TT302

SKIP = FrameSkipped(**F, reason="is generator", step=2)


def test_a_compile_target_that_dynamo_skips_is_told() -> None:
    finding = the_one(coverage.frame_skipped, CALL, SKIP)
    assert (finding.code, str(finding.location), finding.steps) == ("TT302", f"{APP}:3", (2,))
    assert finding.cause == "Dynamo gave up on the whole frame: is generator"
    assert "compile what f calls instead of f itself" in finding.fix.text


def test_a_frame_without_work_on_tensors_gets_another_remedy() -> None:
    finding = the_one(coverage.frame_skipped, CALL, FrameSkipped(**F, reason="No ops traced for the FX graph"))
    assert "make the first calls do real work" in finding.fix.text


@pytest.mark.parametrize("events", [
    [SKIP],
    [CALL, FrameSkipped(**G, reason="is generator")],
    [CALL, SKIP, GraphBreak(**F)],
    [CALL, SKIP, GraphBreak(path=APP, line=9, function="helper", stack=(StackEntry(path=APP, line=5, function="f"),))],
    [CALL, SKIP, LimitHit(**F)],
    [CALL, SKIP, CompileEnd(**F, fail_type="Unsupported")],
    [CALL, FrameSkipped(**F, reason="custom frame execution strategy")],
    [CompileCall(target_path=APP, target_line=4), FrameSkipped(path=APP, line=4, function="torch_dynamo_resume_in_f_at_4", reason="x")],
    [CALL],
], ids=["helper", "other frame", "break", "break below", "limit", "failed", "after a limit", "resume frame", "not skipped"])
def test_a_skip_that_is_explained_or_costs_nothing_is_not_told(events: list[Event]) -> None:
    assert found(coverage.frame_skipped, *events) == []


# TT303

def test_a_compile_that_compiled_nothing_is_told() -> None:
    finding = the_one(coverage.compile_did_nothing, CALL)
    assert (finding.code, finding.title) == ("TT303", "torch.compile(f) compiled nothing")
    assert str(finding.location) == f"{APP}:31"
    assert "call what torch.compile returned at line 31" in finding.fix.text
    assert "not called" in finding.cause


def test_a_compile_that_is_switched_off_is_told_as_such() -> None:
    call = CompileCall(path=APP, line=31, target="f", target_path=APP, target_line=3, disabled=True)
    assert the_one(coverage.compile_did_nothing, call).cause.endswith("disable=True")


MODULE = CompileCall(path=APP, line=31, target="Net.forward", target_path=APP, target_line=3)
WRAPPER = CompileStart(path="/v/site-packages/torch/_dynamo/external_utils.py", line=60, function="inner")


@pytest.mark.parametrize("events", [
    [CALL, CompileStart(**F)],
    [CALL, SKIP],
    [CALL, LIMIT],
    [CALL, CompileStart(**G, stack=(StackEntry(path=APP, line=4, function="f"), StackEntry(path=APP, line=30, function="g")))],
    [CALL, GraphBreak(**G, stack=(StackEntry(path=APP, line=4, function="f"),))],
    [MODULE, WRAPPER],
    [CompileCall(path=APP, line=31, target="print")],
    [CompileCall(path="/v/site-packages/timm/x.py", line=1, target="f", target_path=APP, target_line=3)],
    [],
], ids=["compiled", "skipped", "limit", "in a stack", "in a break", "through torch's wrapper", "no code", "a library's call", "no call"])
def test_a_compile_that_did_something_or_is_not_yours_is_not_told(events: list[Event]) -> None:
    assert found(coverage.compile_did_nothing, *events) == []


def test_while_the_run_goes_on_nobody_can_tell() -> None:
    assert found(coverage.compile_did_nothing, CALL, end=None) == []


# TT304 and TT305

FAILED = CompileEnd(**F, compile_id="0/0", fail_type="BackendCompilerFailed", fail_reason="boom\nin detail", suppress_errors=True)


def test_a_failed_compile_whose_error_was_suppressed_is_told_once() -> None:
    finding = the_one(coverage.compile_failed, FAILED, FAILED)
    assert (finding.code, finding.cause) == ("TT304", "boom")
    assert finding.title == "compiling f failed with BackendCompilerFailed and it runs eager"
    assert finding.evidence.reasons == ("boom\nin detail",)


def test_a_failed_compile_below_a_library_is_shown_at_the_users_line() -> None:
    stack = (StackEntry(path=APP, line=20, function="main"), StackEntry(path="/v/site-packages/timm/x.py", line=1, function="forward"))
    place = {"path": stack[1].path, "line": 1, "function": "forward", "compile_id": "0/0"}
    finding = the_one(
        coverage.compile_failed, CompileStart(**place, stack=stack), CompileEnd(**place, fail_type="Boom", suppress_errors=True),
    )
    assert str(finding.location) == f"{APP}:20"
    assert finding.owner.kind is OwnerKind.LIBRARY


@pytest.mark.parametrize("end", [
    CompileEnd(**F),
    CompileEnd(**F, suppress_errors=True),
    CompileEnd(**F, fail_type="Boom", suppress_errors=False),
    CompileEnd(**F, fail_type="Unsupported", suppress_errors=True),
], ids=["well", "only suppressing", "raised", "a break"])
def test_a_compile_that_went_well_or_raised_is_not_told(end: CompileEnd) -> None:
    assert found(coverage.compile_failed, end) == []


def test_suppressed_errors_are_told_once_even_if_nothing_failed() -> None:
    finding = the_one(coverage.errors_suppressed, CompileEnd(**F, suppress_errors=True), CompileEnd(**G, suppress_errors=True))
    assert finding.code == "TT305"
    assert "suppress_errors" in finding.fix.text


@pytest.mark.parametrize("value", [False, None])
def test_errors_that_are_not_suppressed_are_not_told(value: bool | None) -> None:
    assert found(coverage.errors_suppressed, CompileEnd(**F, suppress_errors=value)) == []


# TT306

def compiled(seconds: float, end: float, place: dict[str, Any] = F, compile_id: str = "0/0", **fields: Any) -> CompileEnd:
    return CompileEnd(**place, compile_id=compile_id, seconds=seconds, time=end, **fields)


def test_a_slow_start_names_the_slowest_compiles() -> None:
    backward = compiled(2.0, 19.0, G, "1/0", is_backward=True)
    finding = the_one(coverage.slow_cold_start, compiled(4.0, 10.0), compiled(9.0, 19.0, G, "1/0"), backward)
    assert (finding.code, finding.title) == ("TT306", "13 s of compiling before steady state")
    assert finding.cause == "slowest: g 9.0 s, f 4.0 s, g (backward) 2.0 s"
    assert (finding.cost.seconds, finding.cost.kind) == (13.0, CostKind.OBSERVED)
    assert finding.evidence.notes == ("2 compiles",)


@pytest.mark.parametrize("ends", [
    [compiled(COLD_START_SECONDS - 0.1, 20.0)],
    [compiled(6.0, 10.0), compiled(6.0, 10.0, G, "1/0")],
    [compiled(1.0, 10.0), compiled(60.0, 80.0, compile_id="0/1")],
    [CompileEnd(**F, compile_id="0/0", time=20.0)],
    [],
], ids=["quick", "side by side", "after steady state began", "not timed", "no compile"])
def test_a_quick_start_is_not_told(ends: list[CompileEnd]) -> None:
    assert found(coverage.slow_cold_start, *ends) == []


@pytest.mark.parametrize(("spans", "expected"), [
    ([], 0.0), ([(0, 2)], 2.0), ([(0, 2), (2, 3)], 3.0), ([(0, 2), (1, 3)], 3.0), ([(0, 10), (2, 3)], 10.0), ([(5, 6), (0, 1)], 2.0),
])
def test_overlapping_compiles_count_once(spans: list[tuple[float, float]], expected: float) -> None:
    assert busy_seconds([CompileEnd(time=float(end), seconds=float(end - start)) for start, end in spans]) == expected


# TT307

def test_bypasses_are_told_with_their_reasons() -> None:
    uses = [CacheUse(cache="aotautograd", outcome="bypass", reason=f"reason {n}\ndetail") for n in (1, 2, 1, 3)]
    finding = the_one(coverage.compile_cache_misses, CacheUse(cache="fx_graph", outcome="hit"), *uses)
    assert (finding.code, finding.title) == ("TT307", "4 compile-cache bypasses")
    assert finding.cause == "aotautograd bypass: 4, fx_graph hit: 1; reason 1"
    assert finding.evidence.reasons == ("reason 1", "reason 2", "reason 3")
    assert finding.cost.kind is CostKind.NOT_MEASURED


def test_one_bypass_and_its_reason_without_an_address() -> None:
    use = CacheUse(cache="aotautograd", outcome="bypass", reason="Unsupported target <function f at 0x7f3f55fc0ea0>. \n more")
    finding = the_one(coverage.compile_cache_misses, use)
    assert finding.title == "1 compile-cache bypass"
    assert finding.cause == "aotautograd bypass: 1; Unsupported target <function f>."


def test_misses_are_told_where_they_took_long() -> None:
    finding = the_one(coverage.compile_cache_misses, *[CacheUse(cache="fx_graph", outcome="miss")] * 3, CompileEnd(inductor_seconds=11.0))
    assert finding.title == "3 graphs were not in the compile cache"
    assert (finding.cost.seconds, finding.cost.kind) == (11.0, CostKind.OBSERVED)


@pytest.mark.parametrize("events", [
    [CacheUse(cache="fx_graph", outcome="miss"), CompileEnd(inductor_seconds=COLD_START_SECONDS - 1)],
    [CacheUse(cache="fx_graph", outcome="hit"), CompileEnd(inductor_seconds=60.0)],
    [CompileEnd(inductor_seconds=60.0)],
], ids=["cheap misses", "hits", "no cache"])
def test_a_cache_that_works_is_not_told(events: list[Event]) -> None:
    assert found(coverage.compile_cache_misses, *events) == []


def test_the_cache_that_a_shape_study_empties_is_no_finding() -> None:
    events = (CacheUse(cache="fx_graph", outcome="miss"), compiled(60.0, 80.0, inductor_seconds=60.0))
    for facts, codes in (({}, ["TT306", "TT307"]), ({"policy": {"name": "as written"}}, ["TT306"])):
        process = Process(events=events, facts=facts)
        findings = [*coverage.slow_cold_start(process), *coverage.compile_cache_misses(process)]
        assert [f.code for f in findings] == codes
        assert ("TORCHINDUCTOR_CACHE_DIR" in findings[0].fix.text) == (not facts)


# all of them

RULES = [
    coverage.recompile_limit_hit, coverage.frame_skipped, coverage.compile_did_nothing, coverage.compile_failed,
    coverage.errors_suppressed, coverage.slow_cold_start, coverage.compile_cache_misses,
]
KINDS = [CacheUse, CompileCall, CompileEnd, CompileStart, FrameSkipped, GraphBreak, LimitHit, Recompile]


@pytest.mark.parametrize("rule", RULES)
def test_events_without_any_field_make_no_rule_fail(rule: Rule) -> None:
    assert isinstance(found(rule, *(kind() for kind in KINDS)), list)
    assert found(rule) == []


def test_a_cache_is_advised_only_where_inductor_compiled() -> None:
    slow: dict[str, Any] = {"path": "/p/net.py", "line": 5, "function": "forward", "compile_id": "0/0", "time": 100.0, "seconds": 30.0}
    [eager] = coverage.slow_cold_start(a_process(CompileEnd(**slow)))
    [inductor] = coverage.slow_cold_start(a_process(CompileEnd(**slow, inductor_seconds=20.0)))
    assert "TORCHINDUCTOR_CACHE_DIR" not in eager.fix.text
    assert "TORCHINDUCTOR_CACHE_DIR" in inductor.fix.text
