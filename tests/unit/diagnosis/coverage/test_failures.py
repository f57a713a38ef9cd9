"""TT304, TT305 and TT308 are reported for failed compiles, each at its own function, and for no others."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.diagnosis.coverage.samples import APP, F, G, findings_of, the_one
from tests.unit.samples import a_process
from torchtriage.diagnosis.coverage.failures import compile_failed, compile_raised, errors_suppressed
from torchtriage.findings.model import Finding, OwnerKind, Severity
from torchtriage.recording.events import (
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    FrameSkipped,
    GraphBreak,
    StackEntry,
)
from torchtriage.recording.recording import Process, Source

STEP: dict[str, Any] = {"path": "/app/train.py", "line": 30, "function": "step", "compile_id": "0/0"}
LIB = "/v/lib/python3.11/site-packages/lightning_utilities/imports.py"
START = CompileStart(**STEP, time=1.0, stack=(
    StackEntry(path="/app/train.py", line=43, function="<module>"),
    StackEntry(path="/app/train.py", line=30, function="step"),
))
FULL = CompileCall(
    path="/app/train.py", line=29, target="step", target_path="/app/train.py", target_line=30, fullgraph=True,
)


def a_failure(fail_type: str, reason: str = "no package", **fields: Any) -> CompileEnd:
    return CompileEnd(
        **{**STEP, "time": 2.0, "fail_type": fail_type, "fail_reason": reason, "suppress_errors": False, **fields}
    )


def errors_of(*events: Event) -> list[Finding]:
    return list(compile_raised(a_process(*events, your_roots=["/app"])))


def test_a_raised_error_is_reported_with_its_message_and_line() -> None:
    [finding] = errors_of(
        START, a_failure("PackageNotFoundError", stack=(StackEntry(path=LIB, line=131, function=""),)),
    )
    assert finding.title == "compiling step failed with PackageNotFoundError, and the call raised it"
    assert finding.cause == "no package at imports.py:131"
    assert (str(finding.location), str(finding.raised_at), str(finding.owner)) == (
        "/app/train.py:30", f"{LIB}:131", "lightning_utilities",
    )
    assert finding.severity is Severity.P0


def test_an_error_in_lightning_is_shown_at_the_users_line_with_its_remedy() -> None:
    module = "/v/lib/python3.11/site-packages/lightning/pytorch/core/module.py"
    lines = (("/app/train.py", 34, "step"), (module, 514, "log"), ("/usr/lib/python3.11/inspect.py", 7, "signature"))
    stack = tuple(StackEntry(path=path, line=line, function=function) for path, line, function in lines)
    [finding] = errors_of(START, a_failure("AttributeError", stack=stack))
    assert str(finding.location) == "/app/train.py:34"
    assert finding.fix.text.startswith("compile the network inside the LightningModule")


def test_an_error_after_which_the_program_compiles_again_is_p1() -> None:
    [finding] = errors_of(
        START, a_failure("BackendCompilerFailed"), CompileStart(**{**STEP, "compile_id": "1/0"}, time=3.0),
    )
    assert finding.severity is Severity.P1
    assert "aot_eager" in finding.fix.text


def test_an_operator_error_is_to_be_reproduced_without_compile() -> None:
    assert errors_of(START, a_failure("TorchRuntimeError"))[0].fix.text.startswith(
        "run step without torch.compile: if it fails there too"
    )


def test_a_captured_number_that_is_tested_is_to_stay_a_tensor() -> None:
    def fix(line: str, *calls: Event) -> str:
        stack = (StackEntry(path="/app/train.py", line=34, function="step"),)
        error = a_failure("UserError", "Could not guard on data-dependent expression zuf0 > 0.0", stack=stack)
        sources = {("/app/train.py", 34): Source(first_line=33, lines=("def step(x):", f"    {line}"))}
        [finding] = compile_raised(replace(a_process(*calls, START, error, your_roots=["/app"]), sources=sources))
        return finding.fix.text

    assert fix("k = int(x.max().item() > 0) + 1", FULL).startswith("`(x.max().detach() > 0).long()` instead of `int(")
    unknown = fix("helper(x)", FULL)
    assert unknown.startswith("keep the value a tensor")
    assert "torch.compiler.disable" not in unknown


def test_disabling_a_function_is_no_remedy_under_fullgraph() -> None:
    assert "torch.compiler.disable" in errors_of(START, a_failure("OSError"))[0].fix.text
    assert "torch.compiler.disable" not in errors_of(FULL, START, a_failure("OSError"))[0].fix.text


def test_an_error_without_a_message_is_reported_by_its_type() -> None:
    [finding] = errors_of(START, a_failure("NotImplementedError", ""))
    assert finding.cause == "NotImplementedError without a message"


def test_an_unsupported_construct_is_an_error_only_under_fullgraph() -> None:
    broken = a_failure("Unsupported", "Data-dependent branching\n  Explanation: no")
    [finding] = errors_of(FULL, START, broken)
    assert finding.cause == "Data-dependent branching: no"
    assert "drop fullgraph=True" in finding.fix.text
    assert errors_of(START, broken) == []
    assert errors_of(FULL, START, GraphBreak(**STEP), broken) == []
    assert errors_of(FULL, START, broken, FrameSkipped(**{**STEP, "compile_id": None})) == []


def test_suppressed_interrupted_and_successful_compiles_are_not_reported() -> None:
    assert errors_of(START, a_failure("E", suppress_errors=True)) == []
    assert errors_of(START, a_failure("KeyboardInterrupt")) == []
    assert errors_of(START, CompileEnd(**STEP)) == []


def test_the_same_error_of_a_function_is_reported_once() -> None:
    assert len(errors_of(START, a_failure("E"), a_failure("E", compile_id="0/1"))) == 1


def test_the_fix_names_a_line_that_can_be_changed() -> None:
    [library] = errors_of(START, a_failure("E", stack=(StackEntry(path=LIB, line=131, function=""),)))
    assert library.fix.text.startswith("do the work that fails at imports.py:131 before the compiled call")
    [python] = errors_of(
        START, a_failure("E", stack=(StackEntry(path="/usr/lib/python3.11/inspect.py", line=2474, function=""),)),
    )
    assert python.fix.text.startswith("do the work that fails at train.py:30 before the compiled call")


# TT304 and TT305

FAILED = CompileEnd(
    **F, compile_id="0/0", fail_type="BackendCompilerFailed", fail_reason="boom\nin detail", suppress_errors=True,
)


def test_a_failed_compile_whose_error_was_suppressed_is_reported_once() -> None:
    finding = the_one(compile_failed, FAILED, FAILED)
    assert (finding.code, finding.cause) == ("TT304", "boom: in detail")
    assert finding.title == "compiling f failed with BackendCompilerFailed and it runs eager"
    assert finding.evidence.reasons == ("boom\nin detail",)


def test_a_failed_compile_below_a_library_is_shown_at_the_users_line() -> None:
    stack = (
        StackEntry(path=APP, line=20, function="main"),
        StackEntry(path="/v/site-packages/timm/x.py", line=1, function="forward"),
    )
    place = {"path": stack[1].path, "line": 1, "function": "forward", "compile_id": "0/0"}
    finding = the_one(
        compile_failed, CompileStart(**place, stack=stack), CompileEnd(**place, fail_type="Boom", suppress_errors=True),
    )
    assert str(finding.location) == f"{APP}:20"
    assert finding.owner.kind is OwnerKind.LIBRARY


@pytest.mark.parametrize("end", [
    CompileEnd(**F),
    CompileEnd(**F, suppress_errors=True),
    CompileEnd(**F, fail_type="Boom", suppress_errors=False),
    CompileEnd(**F, fail_type="Unsupported", suppress_errors=True),
], ids=["well", "only suppressing", "raised", "a break"])
def test_a_successful_or_raising_compile_is_not_reported(end: CompileEnd) -> None:
    assert findings_of(compile_failed, end) == []


def test_suppress_errors_is_reported_once_even_if_nothing_failed() -> None:
    finding = the_one(errors_suppressed, CompileEnd(**F, suppress_errors=True), CompileEnd(**G, suppress_errors=True))
    assert finding.code == "TT305"
    assert "suppress_errors" in finding.fix.text


@pytest.mark.parametrize("value", [False, None])
def test_errors_that_are_not_suppressed_are_not_reported(value: bool | None) -> None:
    assert findings_of(errors_suppressed, CompileEnd(**F, suppress_errors=value)) == []


# torch._dynamo.reset() restarts compile ids

LINES = {"first": 10, "second": 20}


def failed_compile(function: str, time: float, **end: Any) -> list[Event]:
    """A compile of this function, as the first one after a reset, that fails with its name in the message."""
    place: dict[str, Any] = {"path": APP, "line": LINES[function], "function": function, "compile_id": "0/0"}
    stack = (
        StackEntry(path=APP, line=40, function="<module>"),
        StackEntry(path=APP, line=LINES[function], function=function),
    )
    fields = {"fail_type": "RuntimeError", "fail_reason": f"boom in {function}", "suppress_errors": False, **end}
    return [CompileStart(**place, stack=stack, time=time), CompileEnd(**place, time=time + 1, **fields)]


def two_generations(**end: Any) -> Process:
    return a_process(*failed_compile("first", 1.0, **end), *failed_compile("second", 5.0, **end), your_roots=["/app"])


@pytest.mark.parametrize(
    ("rule", "suppressed"), [(compile_failed, True), (compile_raised, False)], ids=["TT304", "TT308"],
)
def test_each_failure_is_reported_at_its_own_function(rule: Any, suppressed: bool) -> None:
    first, second = rule(two_generations(suppress_errors=suppressed))
    for finding, function in ((first, "first"), (second, "second")):
        assert finding.title.startswith(f"compiling {function} failed with RuntimeError")
        assert finding.cause == f"boom in {function}"
        assert (finding.location.function, finding.location.line) == (function, LINES[function])


def test_suppress_errors_is_reported_where_it_first_took_effect() -> None:
    [finding] = errors_suppressed(two_generations(suppress_errors=True))
    assert finding.location.function == "first"


def test_a_break_before_the_reset_does_not_excuse_a_failure_after_it() -> None:
    """Under fullgraph=True an unsupported construct is an error, unless that very compile met a break."""
    call = CompileCall(path=APP, line=5, target="second", target_path=APP, target_line=20, fullgraph=True)
    start, _ = failed_compile("first", 1.0)
    cut = GraphBreak(path=APP, line=11, function="first", compile_id="0/0", time=1.5, type="print")
    failed = failed_compile("second", 5.0, fail_type="Unsupported", fail_reason="no such thing")
    process = a_process(call, start, cut, *failed, your_roots=["/app"])
    assert [finding.location.function for finding in compile_raised(process)] == ["second"]


def test_two_methods_of_one_name_that_fail_in_one_file_are_two_findings() -> None:
    def failed(compile_id: str, line: int) -> list[Event]:
        place = {"path": APP, "line": line, "function": "forward", "compile_id": compile_id}
        end = CompileEnd(**place, fail_type="RuntimeError", fail_reason="boom", suppress_errors=True)
        return [CompileStart(**place), end]

    found = findings_of(compile_failed, *failed("0/0", 3), *failed("1/0", 20))
    assert [finding.location.line for finding in found] == [3, 20]


def test_a_mark_that_the_code_contradicts_is_to_be_weakened_or_taken_out() -> None:
    reason = (
        "Constraints violated (L['x'].size()[1])!\n  - You marked L['x'].size()[1] as dynamic but your code "
        "specialized it to be a constant (8). If you're using mark_dynamic, either remove it or use maybe_mark_dynamic."
    )
    [finding] = errors_of(START, a_failure("ConstraintViolationError", reason))
    assert finding.fix.text.startswith("torch._dynamo.maybe_mark_dynamic instead of mark_dynamic on x, dimension 1, or")
