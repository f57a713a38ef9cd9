"""Finds the operation of a graph after which the compiled values are wrong, by compiling ever shorter beginnings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.capture.operations.graphs.graph_walk import eager, in_double
from torchtriage.capture.operations.graphs.judgement import Judge, Judgement, ValueDifference
from torchtriage.capture.operations.graphs.outcome import FORWARD, GRADIENT, outcome, tensors
from torchtriage.capture.operations.graphs.place import describe
from torchtriage.capture.operations.graphs.prefix import alone, copied, cut_after, cut_before, operations
from torchtriage.capture.operations.graphs.snapshot import Snapshot
from torchtriage.capture.torch_private.graphs import dynamo_paused, trace_paused

Compile = Callable[[Any, Sequence[Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """How far the search came: the node, or the reason why it is not known."""

    node: Any = None
    difference: ValueDifference | None = None
    inputs_equal: bool = False          # the beginning without the operation is equal bit by bit, not only by rounding
    is_wrong_alone: bool | None = None  # the operation compiled by itself; None: could not be compiled or repeated
    aten: Sequence[str] = ()
    reason: str = ""
    num_compiles: int = 0


class Bisection:
    """One graph, the inputs of the call that differs, and the backend to try beginnings of the graph with."""

    def __init__(self, graph: Any, snapshot: Snapshot, compile_graph: Compile, in_gradient: bool) -> None:
        self._graph, self._snapshot, self._compile = graph, snapshot, compile_graph
        self._in_gradient = in_gradient
        self._values: dict[Any, Any] = {}        # of each node, from an eager run
        self._num_compiles = 0

    def search(self) -> Bisected:
        """A binary search: its two ends always are a beginning that agrees and one that differs."""
        self._observe()
        nodes = operations(self._graph)
        agrees, differs = -1, len(nodes) - 1
        judged: dict[int, Judgement] = {-1: Judgement((), True)}
        last = self._judged(self._graph)
        if last is None or not self._wrong(last):
            reason = "failed to compile again" if last is None else "agrees when it is compiled again"
            return Bisected(reason=f"the graph {reason}", num_compiles=self._num_compiles)
        judged[differs] = last
        unknown: set[int] = set()
        while True:
            middle = _middle(agrees, differs, unknown)
            if middle is None:
                break
            found = self._judged(cut_after(self._graph, nodes[middle], self._values))
            if found is None:
                unknown.add(middle)
                continue
            judged[middle] = found
            if self._wrong(found):
                differs = middle
            else:
                agrees = middle
        if differs - agrees > 1:
            reason = f"{differs - agrees} operations could not be compiled separately"
            return Bisected(reason=reason, num_compiles=self._num_compiles)
        cut = cut_after(self._graph, nodes[differs], self._values)
        wrong = self._judged(cut) if differs == len(nodes) - 1 else judged[differs]     # the full graph returns less
        if wrong is None or not self._wrong(wrong):
            reason = "it agrees when every value up to its last operation is returned"
            return Bisected(reason=reason, num_compiles=self._num_compiles)
        num_outputs = len(cut.graph.output_node().args[0])
        return self._found(nodes[differs], wrong, judged[agrees], num_outputs)

    def _found(self, node: Any, wrong: Judgement, before: Judgement, num_outputs: int) -> Bisected:
        """The operation, unless what differs is a value that was there before it."""
        worst = max(self._wrong(wrong), key=lambda d: float("inf") if d.max_difference is None else d.max_difference)
        is_wrong_alone = self._is_wrong_alone(node)
        single, _ = alone(self._graph, node, self._values.get(node))
        first_own = num_outputs - len(single.graph.output_node().args[0])    # a cut returns its own values last
        is_own = any(found.kind != FORWARD or found.index >= first_own for found in self._wrong(wrong))
        if not is_own and not is_wrong_alone:
            name = describe(node)["name"]
            reason = f"a value of an earlier operation differs only once {name} is compiled with it"
            return Bisected(reason=reason, num_compiles=self._num_compiles)
        is_discrete = any(not tensor.is_floating_point() for tensor in tensors(self._values.get(node)))
        if is_discrete and not is_wrong_alone and not before.is_equal:
            reason = "a discrete value differs, and its inputs differ by rounding, which may decide it"
            return Bisected(reason=reason, num_compiles=self._num_compiles)
        return Bisected(
            node=node, difference=worst, inputs_equal=before.is_equal, is_wrong_alone=is_wrong_alone,
            aten=self._aten(node), num_compiles=self._num_compiles)

    def _wrong(self, judgement: Judgement) -> list[ValueDifference]:
        """The differences of the kind that is searched: where values already differ, gradients differ too."""
        return [found for found in judgement.differences if (found.kind == GRADIENT) == self._in_gradient]

    def _observe(self) -> None:
        """Run the graph eagerly once and keep every value, for its form."""
        outcome(eager(self._graph, self._values.__setitem__), self._snapshot, with_gradients=False)

    def _judged(self, graph: Any) -> Judgement | None:
        """The beginning compiled and run; None if it cannot be."""
        try:
            judge = Judge(eager(graph), in_double(graph), self._snapshot, self._in_gradient)
            return judge.judge(self._compiled(graph, self._snapshot))
        except Exception:
            return None

    def _compiled(self, graph: Any, snapshot: Snapshot) -> Callable[..., Any]:
        self._num_compiles += 1
        with trace_paused(), dynamo_paused():
            return self._compile(copied(graph), snapshot.copies().arguments)

    def _is_wrong_alone(self, node: Any) -> bool | None:
        """Whether the operation is wrong on the inputs that eager code gives it, without its neighbours."""
        try:
            graph, inputs = alone(self._graph, node, self._values.get(node))
            arguments = self._inputs_of(node, inputs)
            snapshot = Snapshot(arguments)
            judge = Judge(eager(graph), in_double(graph), snapshot, self._in_gradient)
            return bool(self._wrong(judge.judge(self._compiled(graph, snapshot))))
        except Exception:
            return None

    def _inputs_of(self, node: Any, inputs: Sequence[Any]) -> list[Any]:
        """The values of these nodes right before the operation, each a leaf that receives its gradient if it did."""
        import torch

        graph, copies = cut_before(self._graph, node)
        given = self._snapshot.copies().arguments
        placeholders = [found for found in graph.graph.nodes if found.op == "placeholder"]
        seen: dict[Any, Any] = dict(zip(placeholders, given, strict=True))
        with dynamo_paused():
            eager(graph, seen.__setitem__)(*given)
        values = []
        for source in inputs:
            value = seen[copies[source]]
            if isinstance(value, torch.Tensor):
                value = value.detach().clone().requires_grad_(value.requires_grad)
            values.append(value)
        return values

    def _aten(self, node: Any) -> list[str]:
        from torchtriage.capture.operations.operation_stream import names_of

        try:
            graph, inputs = alone(self._graph, node, self._values.get(node))
            return names_of(eager(graph), self._inputs_of(node, inputs))
        except Exception:
            return []


def _middle(agrees: int, differs: int, unknown: set[int]) -> int | None:
    """The untried position closest to the middle; None if there is none."""
    candidates = [position for position in range(agrees + 1, differs) if position not in unknown]
    return min(candidates, key=lambda p: abs(2 * p - agrees - differs)) if candidates else None


def describe_bisected(found: Bisected) -> dict[str, Any]:
    """The fields of the operation in the result."""
    assert found.node is not None
    return {
        **describe(found.node), "aten": list(found.aten), "inputs_equal": found.inputs_equal,
        "is_wrong_alone": found.is_wrong_alone,
    }
