"""Findings that follow from another one are listed under it."""

from typing import Any

from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.events import (
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    LimitHit,
    Recompile,
    StackEntry,
)

APP = "/app/model.py"
CALL = CompileCall(path=APP, line=40, target="forward", target_path=APP, target_line=20)
START = CompileStart(compile_id="0/0", path=APP, line=20, function="forward")


def entry(line: int, function: str = "forward") -> StackEntry:
    return StackEntry(path=APP, line=line, function=function)


def a_break(line: int, gb_id: str, kind: str, *, function: str = "forward", **fields: Any) -> GraphBreak:
    stack = (entry(21), entry(line, function)) if function != "forward" else (entry(line),)
    return GraphBreak(**{
        "path": APP, "line": line, "function": function, "compile_id": "0/0", "gb_id": gb_id, "type": kind,
        "explanation": f"{kind} is not supported", "stack": stack, **fields,
    })


CRC = a_break(14, "GB0007", "Attempted to call function marked as skipped", function="row")
FOLLOW_ON = a_break(21, "GB0092", "Reconstruction failure", whole_frame=True)


def findings(*events: Event) -> list[Finding]:
    reported = diagnose(a_recording(a_process(*events, your_roots=["/app"])))
    return [finding for finding in reported if not finding.code.startswith("TT9")]


def test_a_failed_reconstruction_follows_from_the_break_before_it() -> None:
    [finding] = findings(CALL, START, CRC, FOLLOW_ON)
    assert (finding.code, finding.location.line, finding.severity) == ("TT106", 14, Severity.P1)
    assert any("TT111" in line for line in finding.evidence.folded)


def test_a_failed_reconstruction_without_a_break_is_a_finding() -> None:
    assert [finding.code for finding in findings(CALL, START, FOLLOW_ON)] == ["TT111"]


def test_recompiles_of_a_function_split_off_by_a_break_follow_from_the_break() -> None:
    separate = CompileStart(compile_id="1/0", path=APP, line=13, function="row", stack=(entry(21), entry(13, "row")))
    again = Recompile(compile_id="1/1", path=APP, line=13, function="row", reasons=("1/0: name == 'age'",))
    [finding] = findings(CALL, START, CRC, FOLLOW_ON, separate, again)
    assert finding.code == "TT106"
    assert any("TT224" in line for line in finding.evidence.folded)


def test_a_counter_in_a_function_split_off_by_a_break_stays_a_finding_with_its_limit() -> None:
    encode = {"path": APP, "line": 13, "function": "encode"}
    separate = CompileStart(**encode, compile_id="1/0", stack=(entry(21), entry(13, "encode")))
    again = [
        Recompile(**encode, compile_id=f"1/{n}", reasons=(f"1/{n - 1}: self.calls == {n - 1}  # self.calls += 1",))
        for n in range(1, 4)
    ]
    hit = LimitHit(**encode, compile_id="1/4", limit=4, reasons=("1/3: self.calls == 3  # self.calls += 1",))
    by_code = {finding.code: finding for finding in findings(CALL, START, CRC, FOLLOW_ON, separate, *again, hit)}
    assert set(by_code) == {"TT301", "TT106", "TT206"}
    assert "self.calls" in by_code["TT301"].fix.text


def test_a_limit_behind_folded_recompiles_follows_from_the_same_break() -> None:
    row = {"path": APP, "line": 13, "function": "row"}
    separate = CompileStart(**row, compile_id="1/0", stack=(entry(21), entry(13, "row")))
    again = Recompile(**row, compile_id="1/1", reasons=("1/0: name == 'age'",))
    hit = LimitHit(**row, compile_id="1/2", limit=2, reasons=("1/1: name == 'sex'",))
    [finding] = findings(CALL, START, CRC, FOLLOW_ON, separate, again, hit)
    assert finding.code == "TT106"
    assert {line.split()[0] for line in finding.evidence.folded} >= {"TT224", "TT301"}


def test_recompiles_of_the_compiled_function_itself_stay_a_finding() -> None:
    again = Recompile(compile_id="0/1", path=APP, line=20, function="forward", reasons=("0/0: name == 'age'",))
    assert sorted(finding.code for finding in findings(CALL, START, CRC, again)) == ["TT106", "TT224"]


def test_backward_and_optimizer_in_one_function_are_one_finding() -> None:
    backward = a_break(24, "GB0123", "Unsupported Tensor.backward() call")
    step = a_break(25, "GB0098", "Optimizer step", explanation="optimizer step")
    [finding] = findings(CALL, START, backward, step)
    assert (finding.code, finding.location.line) == ("TT109", 24)
    assert any("TT118" in line for line in finding.evidence.folded)


def test_the_limit_of_a_resume_frame_follows_from_its_break() -> None:
    resumed = {"path": APP, "line": 20, "function": "torch_dynamo_resume_in_forward_at_22"}
    item = a_break(22, "GB0124", "Unsupported Tensor.item() call with capture_scalar_outputs=False")
    start = CompileStart(**resumed, compile_id="1/0")
    hit = LimitHit(**resumed, compile_id="1/8", limit=8, reasons=("1/7: ___stack1 == 8",))
    [finding] = findings(CALL, START, item, start, hit)
    assert (finding.code, finding.location.line, finding.severity) == ("TT104", 22, Severity.P1)
    assert any("TT301" in line for line in finding.evidence.folded)


RESUMED = {"path": APP, "line": 20, "function": "torch_dynamo_resume_in_forward_at_22"}
ITEM = a_break(22, "GB0124", "Unsupported Tensor.item() call with capture_scalar_outputs=False")


def resumed_again(guard: str, *, num: int = 3) -> list[Event]:
    """Compiles of the resume frame behind ITEM, each because of this guard with the next number, up to its limit."""
    stack = f'\nuser stack:\n  File "{APP}", line 23, in {RESUMED["function"]}\n    self.seen.append(1)'
    reasons = [f"1/{n}: {guard} == {n}{stack}" for n in range(num)]
    again = [Recompile(**RESUMED, compile_id=f"1/{n + 1}", reasons=(reasons[n],)) for n in range(num - 1)]
    hit = LimitHit(**RESUMED, compile_id=f"1/{num}", limit=num, reasons=(reasons[-1],))
    ends = [CompileEnd(**RESUMED, compile_id=f"1/{n}", seconds=1.0) for n in range(num)]
    return [CompileStart(**RESUMED, compile_id="1/0"), *again, hit, *ends]


def test_state_that_changes_behind_a_break_stays_a_finding_with_its_limit() -> None:
    by_code = {finding.code: finding for finding in findings(CALL, START, ITEM, *resumed_again("len(self.seen)"))}
    assert set(by_code) == {"TT104", "TT217", "TT301"}
    assert by_code["TT104"].severity == Severity.P3
    assert "self.seen" in by_code["TT301"].fix.text
    assert {by_code[code].location.line for code in ("TT217", "TT301")} == {23}


def test_values_that_cross_a_break_recompile_because_of_it() -> None:
    [finding] = findings(CALL, START, ITEM, *resumed_again("___stack0"))
    assert finding.code == "TT104"


def test_the_compile_time_of_a_resume_frame_counts_once_where_its_limit_is_folded() -> None:
    [finding] = findings(CALL, START, ITEM, *resumed_again("___stack0"))
    assert finding.cost.seconds == 3.0


def test_start_and_stop_of_a_clock_are_one_finding() -> None:
    kind, context = "Attempted to call function marked as skipped", "module: time, qualname: perf_counter"
    readings = [a_break(line, "GB0007", kind, context=context) for line in (22, 24)]
    [finding] = findings(CALL, START, *readings, readings[1])
    assert (finding.code, finding.location.line) == ("TT125", 22)
    assert any("model.py:24" in line for line in finding.evidence.folded)


def test_breaks_that_one_change_of_a_line_removes_are_one_finding() -> None:
    code = 'with open(path, "a") as file:'
    stack = (StackEntry(path=APP, line=22, function="forward", code=code),)
    made = a_break(22, "GB0059", "Failed to trace builtin operator", stack=stack)
    entered = a_break(22, "GB0142", "Unsupported context manager", whole_frame=True, stack=stack)
    [finding] = findings(CALL, START, made, entered)
    assert (finding.code, finding.severity) == ("TT115", Severity.P1)
    assert finding.fix.text.startswith(f"move the block of `{code}`")
    assert len(finding.evidence.folded) == 1


def test_an_exception_within_a_broken_call_follows_from_the_break() -> None:
    raised = a_break(14, "GB0088", "Observed exception", function="row", whole_frame=True)
    [finding] = findings(CALL, START, CRC, raised)
    assert (finding.code, finding.location.line) == ("TT106", 14)
    assert any("TT122" in line for line in finding.evidence.folded)


def test_an_exception_at_a_line_that_does_not_break_stays_a_finding() -> None:
    raised = a_break(30, "GB0088", "Observed exception", function="other")
    assert {finding.code for finding in findings(CALL, START, CRC, raised)} == {"TT106", "TT122"}


def test_an_unset_cell_follows_from_the_break_before_it() -> None:
    unset = a_break(21, "GB0091", "Read uninitialized cell", whole_frame=True)
    assert [finding.code for finding in findings(CALL, START, CRC, unset)] == ["TT106"]
