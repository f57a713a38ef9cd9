"""The sentences that say where two runs differ, made from the fields of a location."""

from collections.abc import Iterator

from torchtriage.findings.proof.location import (
    DifferencePlace,
    LocatedBy,
    LocatedOperation,
    LocationState,
    OperationChange,
)
from torchtriage.text import counted


def location_sentence(found: DifferencePlace) -> str:
    """The operation, or how far the search came."""
    if found.state is LocationState.OPERATION:
        return _stream(found) if found.by is not LocatedBy.GRAPHS else _in_graph(found)
    if found.state is LocationState.GRAPH:
        return (f"not located: graph {found.graph} ({_backend(found)}) differs from its operations run one by one"
                f"{_amount(found)}, but {found.reason}")
    if found.state is LocationState.NOT_COMPARED:
        return f"not located: {found.reason}"
    if found.by is LocatedBy.GRAPHS:
        compared = f"{counted(found.num_compared, 'compared call')} of {counted(found.num_graphs, 'compiled graph')}"
        return f"not located: {compared} agree with their operations run one by one"
    return f"not located: {counted(found.num_compared, 'operation')} of both sides agree, to the end of the step"


def location_notes(found: DifferencePlace) -> Iterator[str]:
    if found.state is LocationState.OPERATION and found.by is LocatedBy.GRAPHS:
        yield from _graph_notes(found)
    elif found.state is LocationState.OPERATION:
        yield f"{counted(found.num_compared, 'operation')} before it agree"
    yield from found.notes


def _in_graph(found: DifferencePlace) -> str:
    assert found.operation is not None
    what = "gradient" if found.is_gradient else "output"
    return (f"first operation whose inputs agree and whose {what} does not: {_named(found.operation)}"
            f"{_amount(found)}, graph {found.graph} ({_backend(found)})")


def _graph_notes(found: DifferencePlace) -> Iterator[str]:
    agree = "equal bit for bit" if found.inputs_equal else "equal within rounding"
    yield f"the graph up to this operation, compiled, is {agree}; with it, it is not ({_compiles(found)})"
    if found.is_wrong_alone:
        yield "it also differs when it is compiled alone"
    elif found.is_wrong_alone is False:
        yield "compiled alone it agrees: it differs only together with the operations before it"
    if found.aot_eager_differs:
        yield "aot_eager differs too: the difference arises before code is generated"
    elif found.aot_eager_differs is False:
        yield f"aot_eager agrees for this graph, backend {found.backend} does not"


def _stream(found: DifferencePlace) -> str:
    operation = found.operation
    assert operation is not None
    first, second = _sides(found.by)
    if found.is_random:
        return f"the first difference is a random draw, {_named(operation)}: the arithmetic behind it was not compared"
    if found.change is OperationChange.MISSING:
        return f"first operation that {first} has and {second} has not: {_named(operation)}"
    if found.change is OperationChange.INSERTED:
        return f"first operation that {second} has and {first} has not: {_named(operation)}"
    if found.change is OperationChange.REPLACED and found.other is not None:
        return f"first operation that differs: {_named(operation)} in {first}, {_named(found.other)} in {second}"
    place = f", in {second} {_place(found.other)}" if found.other is not None and _moved(found) else ""
    amount = "" if found.max_difference is None else f", relative difference {found.max_difference:.3g}"
    return f"first operation whose inputs agree and whose output does not: {_named(operation)}{place}{amount}"


def _sides(by: LocatedBy) -> tuple[str, str]:
    return ("the eager run", "Dynamo's trace") if by is LocatedBy.TRACED else ("BEFORE", "AFTER")


def _moved(found: DifferencePlace) -> bool:
    assert found.operation is not None
    assert found.other is not None
    return (found.operation.path, found.operation.line) != (found.other.path, found.other.line)


def _named(operation: LocatedOperation) -> str:
    aten = f" ({operation.aten[0]})" if len(operation.aten) == 1 else ""
    place = _place(operation)
    if operation.is_backward:
        return f"{operation.name}{aten}, in the backward of {place}"
    return f"{operation.name}{aten} {place}".rstrip()


def _place(operation: LocatedOperation) -> str:
    if not operation.path or operation.line is None:
        return ""
    owner = ".".join(part for part in (operation.module, operation.function) if part and part != "<module>")
    module = f", module {operation.module_path}" if operation.module_path else ""
    inside = f" ({owner}{module})" if owner else ""
    return f"at {operation.path}:{operation.line}{inside}"


def _amount(found: DifferencePlace) -> str:
    if found.detail:
        return f": {found.detail}"
    if found.max_difference is None:
        return ""
    return f", max difference {found.max_difference:.3g} of {found.scale or 0.0:.3g}"


def _backend(found: DifferencePlace) -> str:
    kind = "backward" if found.is_gradient else "forward"
    return f"{kind}, backend {found.backend}"


def _compiles(found: DifferencePlace) -> str:
    return f"{counted(found.num_compiles, 'compile')} of parts of it"
