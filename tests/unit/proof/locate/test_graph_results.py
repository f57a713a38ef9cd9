"""The files that child processes leave, read into one place."""

import json
from pathlib import Path
from typing import Any

from torchtriage.findings.proof.location import LocationState
from torchtriage.proof.locate.graph_results import read_graphs

VALUE = {"kind": "output", "index": 0, "max_difference": 0.25, "scale": 1.3, "eager_error": 1e-8, "reason": ""}
OPERATION = {
    "name": "operator.mul", "path": "model.py", "line": 31, "function": "forward", "module": "Block",
    "module_path": "blocks.0", "aten": ["aten.mul"], "inputs_equal": True, "is_wrong_alone": False,
}


def graph(**more: Any) -> dict[str, Any]:
    fields = {"compile_id": "0/1", "num_operations": 3, "num_calls": 5, "num_compared": 3, "is_equal": True}
    return {**fields, "not_compared": "", **more}


def leave(folder: Path, graphs: list[dict[str, Any]], difference: dict[str, Any] | None, process: int = 1) -> None:
    (folder / f"graphs-{process}.json").write_text(json.dumps({"graphs": graphs, "difference": difference}))


def difference(**more: Any) -> dict[str, Any]:
    fields = {
        "compile_id": "0/1", "call": 1, "backend": "inductor", "layer": "backend", "aot_eager_differs": False,
        "in_gradient": False, "value": VALUE, "operation": OPERATION, "difference": VALUE, "reason": "",
        "num_compiles": 7, "step": 4,
    }
    return {**fields, **more}


def test_an_operation_is_read_with_all_that_was_shown(tmp_path: Path) -> None:
    leave(tmp_path, [graph()], None, 1)
    leave(tmp_path, [graph()], difference(), 2)
    found = read_graphs(tmp_path)
    assert found.state is LocationState.OPERATION
    assert found.operation is not None
    assert (found.operation.path, found.operation.line, found.operation.aten) == ("model.py", 31, ["aten.mul"])
    assert (found.graph, found.step, found.max_difference, found.num_graphs) == ("0/1", 4, 0.25, 2)
    assert (found.inputs_equal, found.is_wrong_alone, found.aot_eager_differs) == (True, False, False)


def test_a_graph_without_operation_keeps_the_reason(tmp_path: Path) -> None:
    leave(tmp_path, [graph()], difference(operation=None, difference=None, reason="the graph failed to compile again"))
    found = read_graphs(tmp_path)
    assert found.state is LocationState.GRAPH
    assert (found.operation, found.reason) == (None, "the graph failed to compile again")


def test_graphs_that_agree_say_how_many_calls_were_compared(tmp_path: Path) -> None:
    leave(tmp_path, [graph(), graph(num_compared=0, not_compared="an input is a DTensor")], None)
    found = read_graphs(tmp_path)
    assert (found.state, found.num_graphs, found.num_compared) == (LocationState.AGREES, 2, 3)
    assert found.notes == ["an input is a DTensor"]


def test_nothing_compared_is_not_agreement(tmp_path: Path) -> None:
    assert read_graphs(tmp_path).reason == "no graph was compiled"
    leave(tmp_path, [graph(num_compared=0, not_compared="an input is a DTensor")], None)
    found = read_graphs(tmp_path)
    assert (found.state, found.reason) == (LocationState.NOT_COMPARED, "an input is a DTensor")
