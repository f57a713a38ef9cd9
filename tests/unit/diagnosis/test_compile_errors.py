"""A compile whose error came out of the compiled call is a finding; one that was cut, skipped or suppressed is not."""

from typing import Any

from tests.unit.samples import a_process
from torchtriage.diagnosis.compile_errors import compile_raised
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.events import CompileCall, CompileEnd, CompileStart, Event, FrameSkipped, GraphBreak, StackEntry

STEP: dict[str, Any] = {"path": "/app/train.py", "line": 30, "function": "step", "compile_id": "0/0"}
LIB = "/v/lib/python3.11/site-packages/lightning_utilities/imports.py"
START = CompileStart(**STEP, time=1.0, stack=(
    StackEntry(path="/app/train.py", line=43, function="<module>"), StackEntry(path="/app/train.py", line=30, function="step"),
))
FULL = CompileCall(path="/app/train.py", line=29, target="step", target_path="/app/train.py", target_line=30, fullgraph=True)


def failed(fail_type: str, reason: str = "no package", **fields: Any) -> CompileEnd:
    return CompileEnd(**{**STEP, "time": 2.0, "fail_type": fail_type, "fail_reason": reason, "suppress_errors": False, **fields})


def told(*events: Event) -> list[Finding]:
    return list(compile_raised(a_process(*events, your_roots=["/app"])))


def test_an_error_that_came_out_of_the_call_is_told_with_its_message_and_line() -> None:
    [found] = told(START, failed("PackageNotFoundError", stack=(StackEntry(path=LIB, line=131, function=""),)))
    assert found.title == "compiling step failed with PackageNotFoundError, and the call raised it"
    assert found.cause == "no package at imports.py:131"
    assert (str(found.location), str(found.raised_at), str(found.owner)) == ("/app/train.py:30", f"{LIB}:131", "lightning_utilities")
    assert found.severity is Severity.P0


def test_a_program_that_compiles_again_is_not_dead() -> None:
    [found] = told(START, failed("BackendCompilerFailed"), CompileStart(**{**STEP, "compile_id": "1/0"}, time=3.0))
    assert found.severity is Severity.P1
    assert "aot_eager" in found.fix.text


def test_an_operator_that_refuses_its_shapes_is_to_be_run_without_compile() -> None:
    assert told(START, failed("TorchRuntimeError"))[0].fix.text.startswith("run step without torch.compile: if it fails there too")


def test_an_error_without_a_message_is_told_by_its_type() -> None:
    [found] = told(START, failed("NotImplementedError", ""))
    assert found.cause == "NotImplementedError without a message"


def test_an_unsupported_construct_is_an_error_only_under_fullgraph() -> None:
    broken = failed("Unsupported", "Data-dependent branching\n  Explanation: no")
    [found] = told(FULL, START, broken)
    assert found.cause == "Data-dependent branching: no"
    assert "drop fullgraph=True" in found.fix.text
    assert told(START, broken) == []
    assert told(FULL, START, GraphBreak(**STEP), broken) == []
    assert told(FULL, START, broken, FrameSkipped(**{**STEP, "compile_id": None})) == []


def test_what_was_suppressed_interrupted_or_went_well_is_not_told() -> None:
    assert told(START, failed("E", suppress_errors=True)) == []
    assert told(START, failed("KeyboardInterrupt")) == []
    assert told(START, CompileEnd(**STEP)) == []


def test_the_same_error_of_a_function_is_told_once() -> None:
    assert len(told(START, failed("E"), failed("E", compile_id="0/1"))) == 1


def test_the_fix_names_a_line_that_can_be_changed() -> None:
    [library] = told(START, failed("E", stack=(StackEntry(path=LIB, line=131, function=""),)))
    assert library.fix.text.startswith("do what fails at imports.py:131 before the compiled call")
    [python] = told(START, failed("E", stack=(StackEntry(path="/usr/lib/python3.11/inspect.py", line=2474, function=""),)))
    assert python.fix.text.startswith("do what fails at train.py:30 before the compiled call")
