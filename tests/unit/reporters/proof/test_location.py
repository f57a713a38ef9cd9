"""The sentences of a located difference state what its fields show."""

from dataclasses import replace

from torchtriage.findings.proof.location import (
    DifferenceKind,
    DifferencePlace,
    LocatedBy,
    LocatedOperation,
    LocationState,
)
from torchtriage.reporters.proof.location import location_notes, location_sentence

MUL = LocatedOperation(
    name="operator.mul", path="model.py", line=31, function="forward", module="Block", module_path="blocks.0",
    aten=["aten.mul.Tensor"])
IN_GRAPH = DifferencePlace(
    state=LocationState.OPERATION, operation=MUL, graph="0/1", backend="inductor", max_difference=0.25, scale=1.3,
    num_compiles=7, inputs_equal=True)


def test_an_operation_in_a_graph() -> None:
    assert location_sentence(IN_GRAPH) == (
        "first operation whose inputs agree and whose output does not: operator.mul (aten.mul.Tensor) at model.py:31 "
        "(Block.forward, module blocks.0), max difference 0.25 of 1.3, graph 0/1 (forward, backend inductor)")


def test_a_gradient_is_not_called_an_output() -> None:
    text = location_sentence(replace(IN_GRAPH, is_gradient=True))
    assert "whose gradient does not" in text
    assert "(backward, backend inductor)" in text


def test_the_notes_distinguish_unknown_from_no() -> None:
    unknown, alone = replace(IN_GRAPH, is_wrong_alone=None), replace(IN_GRAPH, is_wrong_alone=False)
    assert len(list(location_notes(unknown))) == 1
    assert "compiled alone it agrees: it differs only together with the operations before it" in location_notes(alone)


def test_an_operation_that_was_lost_before_the_backend() -> None:
    lost = DifferencePlace(
        state=LocationState.OPERATION, by=LocatedBy.TRACED, change=DifferenceKind.MISSING, num_compared=3,
        operation=LocatedOperation(name="aten.add_.Tensor", path="count.py", line=8, function="update"))
    assert location_sentence(lost) == (
        "first operation that the eager run has and Dynamo's trace has not: aten.add_.Tensor at count.py:8 (update)")


def test_a_random_draw_is_not_called_wrong() -> None:
    drawn = DifferencePlace(
        state=LocationState.OPERATION, by=LocatedBy.PROGRAMS, is_random=True, operation=replace(MUL, name="aten.rand"))
    assert "is a random draw" in location_sentence(drawn)


def test_what_was_not_located_says_how_far_it_came() -> None:
    graph = replace(IN_GRAPH, state=LocationState.GRAPH, operation=None, reason="the graph failed to compile again")
    agrees = DifferencePlace(state=LocationState.AGREES, num_compared=12, num_graphs=2)
    nothing = DifferencePlace(state=LocationState.NOT_COMPARED, reason="no graph was compiled")
    assert location_sentence(graph) == (
        "not located: graph 0/1 (forward, backend inductor) differs from its operations run one by one, "
        "max difference 0.25 of 1.3, but the graph failed to compile again")
    assert location_sentence(agrees) == (
        "not located: 12 compared calls of 2 compiled graphs agree with their operations run one by one")
    assert location_sentence(nothing) == "not located: no graph was compiled"
