"""A library function that is compiled apart from its caller: the break behind it, its owner, its fix."""

from dataclasses import replace
from typing import Any

from torchtriage.diagnosis.compiles.targets import break_behind, is_target
from torchtriage.diagnosis.coverage.limits import recompile_limit_hit
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.recompiles.finding import recompiles
from torchtriage.findings.model import Finding
from torchtriage.recording.events import CompileCall, CompileStart, Event, GraphBreak, LimitHit, Recompile, StackEntry
from torchtriage.recording.recording import Process, Recording, Source

SITE = "/v/lib/python3.11/site-packages"
VIT, EINOPS = f"{SITE}/vit/na_vit.py", f"{SITE}/einops/einops.py"
FACTS = {"your_roots": ["/app"], "libraries": {"vit": ("vit", "1.0"), "einops": ("einops", "0.8")}}
CALL = CompileCall(path="/app/train.py", line=3, target="NaViT.forward", target_path=VIT, target_line=255)
YOURS = StackEntry(path="/app/train.py", line=9, function="<module>")
FORWARD = StackEntry(path=VIT, line=318, function="forward")
MODEL = CompileStart(path=VIT, line=255, function="forward", compile_id="0/0", stack=(YOURS, FORWARD))
BREAK = GraphBreak(
    path=VIT, line=318, function="forward", compile_id="0/0", stack=(YOURS, FORWARD), type="Dynamic shape operator",
    whole_frame=True,
)
OWN = StackEntry(path=EINOPS, line=561, function="rearrange")
REARRANGE: dict[str, Any] = {"path": EINOPS, "line": 561, "function": "rearrange", "stack": (YOURS, OWN)}
HELPER = CompileStart(**REARRANGE, compile_id="1/0")


def a_recompile(reason: str, **fields: Any) -> Recompile:
    return Recompile(**{**REARRANGE, "compile_id": "1/1", "reasons": (f"1/0: {reason}",), **fields})


DTYPE = a_recompile("tensor 'tensor' dtype mismatch. expected Float, actual Long")


def process(*events: Event) -> Process:
    return Process(events=events, facts=FACTS)


def finding_of(*events: Event) -> Finding:
    [finding] = recompiles(process(*events))
    return finding


def test_the_fix_of_a_separately_compiled_function_is_to_remove_the_break() -> None:
    finding = finding_of(CALL, MODEL, BREAK, HELPER, DTYPE)
    assert finding.fix.text.startswith(
        "remove the graph break at na_vit.py:318 (its finding says how): because of it rearrange is"
    )
    assert ".to(" not in finding.fix.text


def test_the_owner_of_the_break_owns_the_recompile() -> None:
    assert str(finding_of(CALL, MODEL, BREAK, HELPER, DTYPE).owner) == "vit 1.0"
    assert str(finding_of(CALL, HELPER, DTYPE).owner) == "einops 0.8"


def test_the_recompile_limit_of_that_function_has_the_same_owner_and_fix() -> None:
    limit = LimitHit(**REARRANGE, compile_id="1/8", limit=8)
    findings = diagnose(Recording(processes=(process(CALL, MODEL, BREAK, HELPER, DTYPE, limit),)))
    [hit] = [f for f in findings if f.code == "TT301"]
    assert (str(hit.owner), "na_vit.py:318" in hit.fix.text) == ("vit 1.0", True)


def test_without_a_break_the_fix_is_to_compile_the_caller() -> None:
    assert finding_of(CALL, HELPER, DTYPE).fix.text.startswith(
        "rearrange is called from code of einops 0.8 that is not compiled"
    )


def test_a_size_inside_a_library_is_marked_at_its_origin() -> None:
    finding = finding_of(
        CALL, MODEL, BREAK, HELPER, a_recompile("tensor 'tensor' size mismatch at index 1. expected 8, actual 9"),
    )
    assert "maybe_mark_dynamic on the tensor that this size comes from" in finding.fix.text
    assert "maybe_mark_dynamic(tensor" not in finding.fix.text


def test_the_target_of_torch_compile_keeps_the_fix_about_its_arguments() -> None:
    target = CompileCall(path="/app/train.py", line=3, target="rearrange", target_path=EINOPS, target_line=561)
    assert "to torch.float32" in finding_of(target, HELPER, DTYPE).fix.text


def test_every_frame_may_be_a_target_if_no_call_is_known() -> None:
    assert is_target(process(HELPER), HELPER)
    assert is_target(process(CompileCall(path="/app/train.py", line=3), HELPER), HELPER)
    assert not is_target(process(CALL, HELPER), HELPER)


def test_a_break_inside_the_function_precedes_one_of_an_eager_frame() -> None:
    inner = StackEntry(path=EINOPS, line=600, function="parse")
    within = GraphBreak(path=EINOPS, line=600, function="parse", stack=(YOURS, OWN, inner))
    assert break_behind(process(CALL, MODEL, within, BREAK, HELPER), HELPER) is within


def test_a_break_after_the_first_compile_is_not_its_cause() -> None:
    assert break_behind(process(CALL, MODEL, HELPER, BREAK), HELPER) is None


def test_the_fix_for_a_cache_that_the_model_creates_is_to_disable_it() -> None:
    finding = finding_of(CALL, MODEL, BREAK, HELPER, a_recompile("past_key_values.layers[0].is_initialized == False"))
    assert finding.fix.text.startswith("pass use_cache=False where the cache is not used")


def test_a_decorator_wrapper_is_named_after_the_compiled_function() -> None:
    wrapped = CompileCall(path="/app/train.py", line=3, target="Bert.forward", target_path=EINOPS, target_line=561)
    assert finding_of(wrapped, HELPER, DTYPE).title.startswith("Bert.forward recompiled once")
    other = CompileCall(path="/app/train.py", line=3, target="Head.forward", target_path=EINOPS, target_line=561)
    assert finding_of(wrapped, other, HELPER, DTYPE).title.startswith("rearrange recompiled once")


def test_a_wrapper_nested_in_itself_is_not_the_compiled_function() -> None:
    wrapped = CompileCall(path="/app/train.py", line=3, target="Bert.forward", target_path=EINOPS, target_line=561)
    inner = a_recompile("len(args) == 1", stack=(YOURS, OWN, FORWARD, OWN))
    start = CompileStart(**{**REARRANGE, "stack": inner.stack}, compile_id="1/1")
    finding = finding_of(wrapped, HELPER, MODEL, BREAK, inner, start)
    assert finding.title.startswith("rearrange recompiled once")
    assert finding.fix.text.startswith("remove the graph break at na_vit.py:318")


def test_another_method_of_the_same_name_above_it_is_not_the_same_code() -> None:
    """Block.forward below Net.forward, both in one file."""
    app = "/app/net.py"
    call = CompileCall(path=app, line=40, target="Block.forward", target_path=app, target_line=5)
    below = (StackEntry(path=app, line=22, function="forward"), StackEntry(path=app, line=7, function="forward"))
    start = CompileStart(path=app, line=5, function="forward", compile_id="0/0", stack=below)
    names = {22: "Net.forward", 5: "Block.forward"}
    sources = {(app, line): Source(first_line=line, lines=("",), qualname=name) for line, name in names.items()}
    assert is_target(Process(events=(call, start), facts=FACTS, sources=sources), start)
    above = replace(start, stack=(StackEntry(path=app, line=2, function="forward"), below[1]))
    assert is_target(process(call, above), above)
    recursive = replace(start, stack=(below[1], below[1]))
    assert not is_target(process(call, recursive), recursive)


def test_the_limit_of_a_wrapper_is_named_after_the_compiled_function() -> None:
    wrapped = CompileCall(path="/app/train.py", line=3, target="Bert.forward", target_path=EINOPS, target_line=561)
    [hit] = recompile_limit_hit(process(wrapped, LimitHit(**REARRANGE, compile_id="1/8", limit=8)))
    assert hit.title.startswith("Bert.forward hit its recompile limit (8)")


def test_a_guard_set_by_a_line_of_the_user_is_owned_by_the_user() -> None:
    counted = a_recompile("func.calls == 34  # self.calls += 1  # train.py:13 in forward")
    finding = finding_of(CALL, MODEL, BREAK, HELPER, counted)
    assert (str(finding.owner), finding.code) == ("you", "TT206")
    assert "make func.calls a tensor" in finding.fix.text
    other = a_recompile("func.calls == 34  # self.calls += 1  # other.py:13 in forward")
    assert str(finding_of(CALL, MODEL, BREAK, HELPER, other).owner) == "vit 1.0"
