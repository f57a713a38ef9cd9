"""The finding of NaN or Inf after a replay names the operation, its line and its values."""

from dataclasses import replace

from tests.unit.diagnosis.learning.samples import NAN, a_training, findings_of
from torchtriage.findings.model import Finding
from torchtriage.recording.facts import to_dict
from torchtriage.recording.origins.origin import Operand, Origin, OriginOperation, OriginState, SeenIn

READ = Operand(dtype="float32", shape=(8,), num_values=8, minimum=0.0, maximum=2.5, num_zero=3)
LEFT = Operand(dtype="float32", shape=(8,), num_values=8, minimum=-1.0, maximum=1.0, num_inf=3, num_negative_inf=3)
LOG = OriginOperation(
    name="aten.log", path="/home/me/model.py", line=12, function="forward", module="Head", module_path="head",
    code="return torch.log(p)", operands=(READ,), results=(LEFT,))
FOUND = Origin(
    state=OriginState.OPERATION, seen_in=SeenIn.LOSS, subject="loss", step=3, recorded_step=3, operation=LOG,
    num_passed_on=2)


def finding_of(origin: Origin) -> Finding:
    return findings_of(a_training(loss=[1.0, 0.9, NAN], facts={"non_finite_origin": to_dict(origin)}))["TT401"]


def test_the_finding_has_the_line_of_the_producer() -> None:
    finding = finding_of(FOUND)
    assert (finding.location.path, finding.location.line, finding.location.function) == (
        "/home/me/model.py", 12, "forward")
    assert (
        "A replay names the operation: aten.log at model.py:12 (module head, `return torch.log(p)`) read 8 float32 values "
        "from 0 to 2.5, 3 of them 0, and gave 3 Inf. It was first seen in the loss of step 3; 2 operations passed it on."
    ) in finding.cause
    assert finding.fix.text.startswith("clamp the argument of the log")


def test_a_backward_operation_names_its_node_and_the_tensor_in_which_it_was_seen() -> None:
    backward = replace(LOG, name="aten.div.Tensor", node="SqrtBackward0", is_backward=True)
    finding = finding_of(replace(FOUND, operation=backward, seen_in=SeenIn.GRADIENT, subject="fc.weight"))
    assert "aten.div.Tensor of SqrtBackward0, in the backward pass of the line at model.py:12" in finding.cause
    assert "first seen in the gradient of fc.weight" in finding.cause
    assert "the derivative of sqrt at 0" in finding.fix.text


def test_a_replay_that_finds_it_in_another_step_says_so() -> None:
    assert "The recorded run had it in step 3." in finding_of(replace(FOUND, step=7)).cause


def test_an_operation_without_a_known_fix_keeps_that_of_the_rule() -> None:
    finding = finding_of(replace(FOUND, operation=replace(LOG, name="aten.my_op")))
    assert finding.fix.text.startswith("return to an earlier checkpoint")


def test_the_fix_needs_the_values_that_explain_it() -> None:
    harmless = replace(LOG, operands=(replace(READ, minimum=1.0, num_zero=0),))
    assert "clamp" not in finding_of(replace(FOUND, operation=harmless)).fix.text.split("names the operation")[0]


def test_an_input_is_not_blamed_on_the_operation_that_reads_it() -> None:
    data = replace(READ, num_nan=1)
    cause = finding_of(replace(FOUND, state=OriginState.INPUT, input=data)).cause
    assert "no operation of the step made it: a float32 tensor of shape [8], which aten.log at model.py:12" in cause
    assert "already has 1 NaN among 8 values" in cause


def test_compiled_code_is_named_as_the_cause() -> None:
    finding = finding_of(Origin(state=OriginState.COMPILED, seen_in=SeenIn.LOSS, step=3, num_operations=40))
    assert "with eager operations is finite (40 operations)" in finding.cause
    assert "verify --eager" in finding.fix.text


def test_a_clean_replay_is_said_beside_what_the_run_itself_showed() -> None:
    finding = finding_of(Origin(state=OriginState.CLEAN, step=6, was_compiled=True))
    assert "First seen in the loss at step 3" in finding.cause
    assert "A replay up to step 6 had no NaN or Inf, neither eager nor compiled" in finding.cause
    assert not finding.location.line
