"""Compares each call of a compiled graph with its operations run one by one."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from torchtriage.capture.operations.graphs.bisection import Bisected, Bisection, describe_bisected
from torchtriage.capture.operations.graphs.graph_walk import eager, in_double
from torchtriage.capture.operations.graphs.judgement import Judge, ValueDifference
from torchtriage.capture.operations.graphs.outcome import GRADIENT
from torchtriage.capture.operations.graphs.prefix import copied, operations
from torchtriage.capture.operations.graphs.snapshot import NotComparableError, Snapshot
from torchtriage.capture.operations.graphs.wrapped_backend import Wrap, WrappedBackend
from torchtriage.capture.operations.results import GraphRecord, GraphResults
from torchtriage.capture.torch_private.graphs import backend_function, compile_id, dynamo_paused, trace_paused
from torchtriage.errors import pass_on_signals

LAYER_AOT, LAYER_BACKEND = "aot_eager", "backend"


def shadow(results: GraphResults) -> Wrap:
    """A wrap that compares the calls of each graph while the results still ask for it."""
    def wrap(graph: Any, compiled: Callable[..., Any], backend: WrappedBackend) -> Callable[..., Any]:
        record = GraphRecord(compile_id=compile_id(), num_operations=len(operations(graph)))
        results.graphs.append(record)
        return GraphShadow(graph, compiled, backend, record, results).call

    return wrap


class GraphShadow:
    """One compiled graph beside its operations."""

    def __init__(
        self, graph: Any, compiled: Callable[..., Any], backend: WrappedBackend, record: GraphRecord,
        results: GraphResults,
    ) -> None:
        self._graph, self._compiled, self._backend = graph, compiled, backend
        self._record, self._results = record, results

    def call(self, *arguments: Any) -> Any:
        """The compiled graph; the program gets its result and its random numbers, whatever is compared beside it."""
        import torch

        self._record.num_calls += 1
        if not self._results.wants(self._record):
            return self._compiled(*arguments)
        snapshot = self._snapshot(arguments)
        result = self._compiled(*arguments)
        if snapshot is not None:
            random_state = torch.get_rng_state()
            try:
                self._compare(snapshot)
            except Exception as error:
                pass_on_signals(error)
                self._record.not_compared = f"{type(error).__name__}: {error}"[:300]
            finally:
                torch.set_rng_state(random_state)
        return result

    def _snapshot(self, arguments: Sequence[Any]) -> Snapshot | None:
        try:
            return Snapshot(arguments)
        except NotComparableError as error:
            self._record.not_compared = str(error)
            return None

    def _compare(self, snapshot: Snapshot) -> None:
        judge = Judge(eager(self._graph), in_double(self._graph), snapshot)
        judgement = judge.judge(self._compiled)
        self._record.num_compared += 1
        self._record.is_equal = self._record.is_equal and judgement.is_equal
        if judgement.differences:
            self._locate(snapshot, judge, judgement.differences)

    def _locate(self, snapshot: Snapshot, judge: Judge, differences: Sequence[ValueDifference]) -> None:
        """Name the operation, first with aot_eager: where that differs, the fault is not in the generated code."""
        self._results.is_done = True    # from here on every graph runs as the program has it
        first = next((found for found in differences if found.kind != GRADIENT), differences[0])
        in_gradient = first.kind == GRADIENT
        layer, backend = LAYER_BACKEND, self._backend.original
        is_wrong_by_aot = self._is_wrong_by_aot(snapshot, judge, in_gradient)
        if is_wrong_by_aot:
            layer, backend = LAYER_AOT, backend_function("aot_eager")
        bisected = Bisection(self._graph, snapshot, backend, in_gradient).search()
        self._results.add_difference(
            compile_id=self._record.compile_id, call=self._record.num_calls, backend=self._backend.compiler_name,
            layer=layer, aot_eager_differs=is_wrong_by_aot, in_gradient=in_gradient, value=asdict(first),
            **_fields(bisected),
        )

    def _is_wrong_by_aot(self, snapshot: Snapshot, judge: Judge, in_gradient: bool) -> bool | None:
        """Whether aot_eager differs too; None if it cannot compile the graph."""
        try:
            with trace_paused(), dynamo_paused():
                compiled = backend_function("aot_eager")(copied(self._graph), snapshot.copies().arguments)
            found = judge.judge(compiled).differences
        except Exception:
            return None
        return any((difference.kind == GRADIENT) == in_gradient for difference in found)


def _fields(found: Bisected) -> dict[str, Any]:
    return {
        "operation": None if found.node is None else describe_bisected(found),
        "difference": None if found.difference is None else asdict(found.difference),
        "reason": found.reason, "num_compiles": found.num_compiles,
    }
