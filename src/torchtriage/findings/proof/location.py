"""Where two runs compute different values, as far as it was shown."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class LocationState(enum.StrEnum):
    OPERATION = "operation"         # its inputs agree and its output does not
    GRAPH = "graph"                 # a graph differs, but no single operation could be named
    AGREES = "agrees"               # nothing that was compared differs
    NOT_COMPARED = "not-compared"   # `reason` says why


class LocatedBy(enum.StrEnum):
    GRAPHS = "graphs"               # each call of a compiled graph against its operations, run one by one
    TRACED = "traced"               # the operations of an eager run against those that Dynamo traced
    PROGRAMS = "programs"           # the operations of BEFORE against those of AFTER, both eager


class OperationChange(enum.StrEnum):
    VALUE = "value"                 # the same operation on the same inputs, another output
    MISSING = "missing"             # the second side has no such operation
    INSERTED = "inserted"           # the first side has no such operation
    REPLACED = "replaced"           # another operation in its place


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedOperation:
    """One operation and its line of the program."""

    name: str                       # as the program calls it, or its ATen name in a stream
    path: str = ""
    line: int | None = None
    function: str = ""
    module: str = ""                # the class of the innermost module
    module_path: str = ""           # such as blocks.0
    aten: Sequence[str] = ()
    is_backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferencePlace:
    """The result of `--locate`; fields that were not observed keep their default."""

    state: LocationState
    by: LocatedBy = LocatedBy.GRAPHS
    reason: str = ""
    operation: LocatedOperation | None = None
    change: OperationChange = OperationChange.VALUE
    other: LocatedOperation | None = None   # what the second side has in its place
    is_random: bool = False                 # it draws random numbers, so the draws moved
    is_gradient: bool = False               # the gradient of the operation differs, its output agrees
    is_written_input: bool = False          # an input that the graph writes to differs
    inputs_equal: bool = False              # bit by bit; else within rounding
    is_wrong_alone: bool | None = None      # also when it is compiled without its neighbours
    max_difference: float | None = None     # None where shapes, dtypes or non-finite values differ: see `detail`
    scale: float | None = None              # the largest absolute value that was expected
    eager_error: float | None = None        # distance of eager code from its float64 reference
    detail: str = ""
    graph: str = ""                         # compile id
    backend: str = ""
    aot_eager_differs: bool | None = None   # then code generation is not at fault; None: could not be compiled
    step: int | None = None
    num_graphs: int = 0
    num_compared: int = 0                   # calls of graphs, or operations of both streams
    num_compiles: int = 0                   # of beginnings of the graph
    notes: Sequence[str] = ()
