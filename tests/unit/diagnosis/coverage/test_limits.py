"""TT301 to TT303 are reported for functions that run eager, and for no others."""


from dataclasses import replace

import pytest

from tests.unit.diagnosis.coverage.samples import APP, CALL, FACTS, F, G, findings_of, the_one
from tests.unit.samples import a_process
from torchtriage.diagnosis.coverage.compile_calls import compile_did_nothing
from torchtriage.diagnosis.coverage.limits import frame_skipped, recompile_limit_hit
from torchtriage.findings.model import CostKind, EditLabel, Severity
from torchtriage.recording.events import (
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
from torchtriage.recording.recording import Source

# TT301

LIMIT = LimitHit(**F, compile_id="0/8", limit=8, step=96, reasons=("0/7: k == 2  # y = x * k", "0/6: k == 1"))


def test_a_frame_at_its_limit_is_reported_with_its_eager_calls() -> None:
    counted = {"eager": 412, "misses": 415, "recompiles": 3, "hits": 9}
    finding = the_one(
        recompile_limit_hit, LIMIT, CompileEnd(**F, compile_id="0/0", seconds=2.5), eager_calls=counted, rank=1,
    )
    assert finding.title == "f hit its recompile limit (8): 412 calls ran eager since step 96"
    assert (finding.code, finding.severity) == ("TT301", Severity.P1)
    assert finding.cause.endswith("(torch._dynamo.config.recompile_limit); the last guard that failed: 0/7: k == 2")
    assert (finding.cost.seconds, finding.cost.kind) == (2.5, CostKind.OBSERVED)
    assert (finding.steps, finding.ranks, finding.evidence.compile_ids) == ((96,), (1,), ("0/8",))
    assert "415 guard misses, 3 of them recompiled, 9 hits" in finding.evidence.notes[0]


def test_the_call_that_hits_the_limit_runs_eager_although_the_meter_starts_after_it() -> None:
    finding = the_one(
        recompile_limit_hit, LIMIT, eager_calls={"eager": 0, "misses": 0, "recompiles": 0, "hits": 3})
    assert finding.title == "f hit its recompile limit (8): only the call that hit it ran eager at step 96"


def test_a_limit_without_counted_eager_calls_says_so() -> None:
    finding = the_one(recompile_limit_hit, LimitHit(**F))
    assert finding.title == "f hit its recompile limit: later calls may run eager (not counted)"
    assert finding.cost.kind is CostKind.NOT_MEASURED
    assert finding.steps == ()


def test_with_two_frames_at_their_limit_the_calls_are_those_of_the_process() -> None:
    two = findings_of(
        recompile_limit_hit, LIMIT, LimitHit(**G), eager_calls={"eager": 5, "misses": 5, "recompiles": 0, "hits": 0},
    )
    assert [finding.location.function for finding in two] == ["f", "g"]
    assert all("5 frame executions ran eager in this process" in finding.title for finding in two)
    assert all("2 frames are at their limit" in finding.evidence.notes[-1] for finding in two)


def test_a_library_frame_keeps_its_own_name_at_the_users_line() -> None:
    stack = (
        StackEntry(path=APP, line=40, function="train"),
        StackEntry(path="/v/site-packages/lib/m.py", line=7, function="attend"),
    )
    hit = LimitHit(path="/v/site-packages/lib/m.py", line=7, function="attend", stack=stack, limit=8)
    finding = the_one(recompile_limit_hit, hit)
    assert finding.title.startswith("attend hit its recompile limit (8)")
    assert (finding.location.function, finding.location.line) == ("train", 40)


def test_a_frame_that_hits_its_limit_repeatedly_is_one_finding() -> None:
    finding = the_one(recompile_limit_hit, *[LIMIT] * 40)
    assert finding.evidence.num_events == 40
    assert len(finding.evidence.compile_ids) == 20


@pytest.mark.parametrize(("eager", "hits", "settings"), [
    (3, 8, ["torch._dynamo.config.recompile_limit = 12"]),
    (3, 7, []),         # its variants are not seen to be used again
    (412, 500, []),     # there may be more variants than are worth a compile each
])
def test_the_limit_is_raised_where_its_variants_are_few_and_used_again(
    eager: int, hits: int, settings: list[str],
) -> None:
    counted = {"eager": eager, "misses": eager, "recompiles": 0, "hits": hits}
    edits = the_one(recompile_limit_hit, LIMIT, eager_calls=counted).fix.edits
    assert [(edit.label, edit.text) for edit in edits] == [(EditLabel.SETTING, text) for text in settings]
    both = findings_of(recompile_limit_hit, LIMIT, LimitHit(**G, limit=8), eager_calls=counted)
    assert [edit for finding in both for edit in finding.fix.edits] == []     # the counts are of both
    beside = CompileStart(**G, compile_id="1/0")
    assert the_one(recompile_limit_hit, LIMIT, beside, eager_calls=counted).fix.edits == ()     # g may have hit


def test_the_accumulated_limit_is_named() -> None:
    finding = the_one(recompile_limit_hit, LimitHit(**F, limit_name="accumulated_recompile_limit", limit=256))
    assert "f hit the accumulated recompile limit (256)" in finding.title
    assert "torch._dynamo.config.accumulated_recompile_limit" in finding.fix.text


def test_recompiles_below_the_limit_are_not_reported_by_this_rule() -> None:
    assert findings_of(recompile_limit_hit, CompileStart(**F), *[Recompile(**F)] * 7) == []


# TT302

SKIP = FrameSkipped(**F, reason="is generator", step=2)


def test_a_compile_target_that_dynamo_skips_is_reported() -> None:
    finding = the_one(frame_skipped, CALL, SKIP)
    assert (finding.code, str(finding.location), finding.steps) == ("TT302", f"{APP}:3", (2,))
    assert finding.cause == "Dynamo gave up on the entire frame: is generator"
    assert "compile the functions that f calls instead of f itself" in finding.fix.text


def test_a_generator_is_to_return_a_list() -> None:
    for body, is_generator in (("    yield x", True), ("    return x", False)):
        source = Source(first_line=3, lines=("def f(x):", body))
        run = replace(a_process(CALL, SKIP, **FACTS), sources={(APP, 3): source})
        [finding] = frame_skipped(run)
        assert finding.fix.text.startswith("return a list from f") is is_generator


def test_a_frame_without_tensor_operations_gets_another_remedy() -> None:
    finding = the_one(frame_skipped, CALL, FrameSkipped(**F, reason="No ops traced for the FX graph"))
    assert "make the first calls do real work" in finding.fix.text


def test_a_frame_skipped_because_the_compiler_is_off_names_the_switch() -> None:
    finding = the_one(frame_skipped, CALL, FrameSkipped(**F, reason="Dynamo tracing is disabled"))
    assert "unset TORCH_COMPILE_DISABLE" in finding.fix.text
    assert "from torch 2.14 on" in finding.fix.text
    assert "compile the functions" not in finding.fix.text


@pytest.mark.parametrize("events", [
    [SKIP],
    [CALL, FrameSkipped(**G, reason="is generator")],
    [CALL, SKIP, GraphBreak(**F)],
    [CALL, SKIP, GraphBreak(path=APP, line=9, function="helper", stack=(StackEntry(path=APP, line=5, function="f"),))],
    [CALL, SKIP, LimitHit(**F)],
    [CALL, SKIP, CompileEnd(**F, fail_type="Unsupported")],
    [CALL, FrameSkipped(**F, reason="custom frame execution strategy")],
    [CompileCall(target_path=APP, target_line=4),
     FrameSkipped(path=APP, line=4, function="torch_dynamo_resume_in_f_at_4", reason="x")],
    [CALL],
], ids=[
    "helper", "other frame", "break", "break below", "limit", "failed", "after a limit", "resume frame", "not skipped",
])
def test_a_skip_that_is_explained_or_costs_nothing_is_not_reported(events: list[Event]) -> None:
    assert findings_of(frame_skipped, *events) == []


# TT303

def test_a_torch_compile_call_that_compiled_nothing_is_reported() -> None:
    finding = the_one(compile_did_nothing, CALL)
    assert (finding.code, finding.title) == ("TT303", "torch.compile(f) compiled nothing")
    assert str(finding.location) == f"{APP}:31"
    assert "call the object that torch.compile returned at train.py:31" in finding.fix.text
    assert "not called" in finding.cause


def test_a_disabled_torch_compile_call_is_reported_as_disabled() -> None:
    call = CompileCall(path=APP, line=31, target="f", target_path=APP, target_line=3, disabled=True)
    assert the_one(compile_did_nothing, call).cause.endswith("disable=True")


MODULE = CompileCall(path=APP, line=31, target="Net.forward", target_path=APP, target_line=3)
WRAPPER = CompileStart(path="/v/site-packages/torch/_dynamo/external_utils.py", line=60, function="inner")


@pytest.mark.parametrize("events", [
    [CALL, CompileStart(**F)],
    [CALL, SKIP],
    [CALL, LIMIT],
    [CALL, CompileStart(
        **G, stack=(StackEntry(path=APP, line=4, function="f"), StackEntry(path=APP, line=30, function="g")),
    )],
    [CALL, GraphBreak(**G, stack=(StackEntry(path=APP, line=4, function="f"),))],
    [MODULE, WRAPPER],
    [CompileCall(path=APP, line=31, target="print")],
    [CompileCall(path="/v/site-packages/timm/x.py", line=1, target="f", target_path=APP, target_line=3)],
    [],
], ids=[
    "compiled", "skipped", "limit", "in a stack", "in a break", "through torch's wrapper", "no code",
    "a library's call", "no call",
])
def test_a_compile_call_with_effect_or_of_a_library_is_not_reported(events: list[Event]) -> None:
    assert findings_of(compile_did_nothing, *events) == []


def test_an_unused_compile_call_is_not_reported_while_the_run_continues() -> None:
    assert findings_of(compile_did_nothing, CALL, end=None) == []


def test_a_skip_is_not_explained_by_the_break_of_another_method_of_the_same_name() -> None:
    frame = {"path": APP, "line": 3, "function": "forward"}
    call = CompileCall(path=APP, line=40, target="Net.forward", target_path=APP, target_line=3)
    skip, other = FrameSkipped(**frame, reason="is generator"), GraphBreak(path=APP, line=2, function="forward")
    assert [finding.code for finding in findings_of(frame_skipped, call, other, skip)] == ["TT302"]
    own = GraphBreak(path=APP, line=4, function="forward")
    assert findings_of(frame_skipped, call, own, skip) == []
