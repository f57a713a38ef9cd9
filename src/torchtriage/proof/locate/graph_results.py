"""The comparison of compiled graphs with their operations, as child processes left it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from torchtriage.findings.proof.location import (
    DifferencePlace,
    LocatedOperation,
    LocationState,
)

GRADIENT, WRITE = "gradient", "written input"


def read_graphs(folder: Path) -> DifferencePlace:
    """What all processes compared; the first difference of any of them."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("graphs-*.json"))]
    graphs = [graph for result in results for graph in result["graphs"]]
    counts: dict[str, Any] = {"num_graphs": len(graphs), "num_compared": sum(graph["num_compared"] for graph in graphs)}
    found = next((result["difference"] for result in results if result["difference"]), None)
    if found is not None:
        return _difference(found, counts)
    if counts["num_compared"]:
        left_out = sorted({graph["not_compared"] for graph in graphs if graph["not_compared"]})
        return DifferencePlace(state=LocationState.AGREES, notes=left_out, **counts)
    return DifferencePlace(state=LocationState.NOT_COMPARED, reason=_why_nothing(graphs), **counts)


def _why_nothing(graphs: Sequence[Mapping[str, Any]]) -> str:
    if not graphs:
        return "no graph was compiled"
    return next((graph["not_compared"] for graph in graphs if graph["not_compared"]), "no graph was called")


def _difference(found: Mapping[str, Any], counts: Mapping[str, Any]) -> DifferencePlace:
    operation, value = found["operation"], found["difference"] or found["value"]
    about_graph: dict[str, Any] = {
        "graph": found["compile_id"], "backend": found["backend"], "aot_eager_differs": found["aot_eager_differs"],
        "step": found["step"], "is_gradient": found["in_gradient"], "num_compiles": found["num_compiles"],
        "is_written_input": found["value"]["kind"] == WRITE, "max_difference": value["max_difference"],
        "scale": value["scale"], "eager_error": value["eager_error"], "detail": value["reason"],
    }
    if operation is None:
        return DifferencePlace(state=LocationState.GRAPH, reason=found["reason"], **about_graph, **counts)
    names = {field.name for field in fields(LocatedOperation)}
    return DifferencePlace(
        state=LocationState.OPERATION,
        operation=LocatedOperation(**{name: operation[name] for name in names & operation.keys()}),
        inputs_equal=operation["inputs_equal"], is_wrong_alone=operation["is_wrong_alone"], **about_graph, **counts)
