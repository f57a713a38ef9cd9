"""Ten backends that each compile one operation wrongly: the one on the line of the program that names the fault."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.compile_fx import compile_fx

Edit = Callable[[Any, Any], None]


def marked(graph: Any, line: int) -> list[Any]:
    """The operations of a graph that come from this line of the program."""
    found = []
    for node in graph.graph.nodes:
        last = (node.meta.get("stack_trace") or "").rpartition("File ")[2]
        if node.op in ("call_function", "call_method") and f", line {line}," in last:
            found.append(node)
    return found


def edited(graph: Any, line: int, edit: Edit) -> Any:
    for node in marked(graph, line):
        edit(graph.graph, node)
    graph.graph.lint()
    graph.recompile()
    return graph


def name(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def wrong_constant(graph: Any, node: Any) -> None:
    if name(node) == "mul" and isinstance(node.args[1], float):
        node.args = (node.args[0], node.args[1] * 1.01)


def dropped_term(graph: Any, node: Any) -> None:
    if name(node) == "add":
        node.replace_all_uses_with(node.args[0])


def swapped_operands(graph: Any, node: Any) -> None:
    if name(node) in ("sub", "sub.Tensor"):
        node.args = (node.args[1], node.args[0])


def lowered_dtype(graph: Any, node: Any) -> None:
    if "matmul" in name(node):
        with graph.inserting_before(node):
            low = [graph.call_method("bfloat16", (value,)) for value in node.args]
        node.args = tuple(low)
        with graph.inserting_after(node):
            back = graph.call_method("float", (node,))
        node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)


def missed_write(graph: Any, node: Any) -> None:
    if name(node) == "mul_":
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def wrong_dimension(graph: Any, node: Any) -> None:
    if name(node) == "amax.default":
        node.args = (node.args[0], [-2], *node.args[2:])


def wrong_mask(graph: Any, node: Any) -> None:
    if name(node) == "tril":
        node.kwargs = {**node.kwargs, "diagonal": 1}


def off_by_one(graph: Any, node: Any) -> None:
    if node.target is operator.getitem:
        node.args = (node.args[0], (slice(None), slice(0, -1)))


def wrong_eps(graph: Any, node: Any) -> None:
    if name(node) == "layer_norm":
        node.args = (*node.args[:4], 1e-3)


def wrong_sign(graph: Any, node: Any) -> None:
    if name(node) == "gelu_backward.default":
        with graph.inserting_after(node):
            negated = graph.call_function(torch.ops.aten.neg.default, (node,))
        node.replace_all_uses_with(negated, delete_user_cb=lambda user: user is not negated)


def seeded(fault: str, line: int) -> Callable[[Any, Sequence[Any]], Any]:
    """The backend with this fault, which is in Dynamo's graph, in AOTAutograd's forward or in its backward graph."""
    edit = EDITS[fault]
    if fault == "wrong dimension":
        return aot_autograd(fw_compiler=lambda graph, _: edited(graph, line, edit).forward)
    if fault == "sign":
        return aot_autograd(
            fw_compiler=lambda graph, _: graph.forward,
            bw_compiler=lambda graph, _: edited(graph, line, edit).forward)
    if fault == "wrong constant":       # the only one below which inductor generates code, which takes longest
        return lambda graph, inputs: compile_fx(edited(graph, line, edit), inputs)
    return lambda graph, _: edited(graph, line, edit).forward


EDITS: dict[str, Edit] = {
    "wrong constant": wrong_constant, "dropped term": dropped_term, "swapped operands": swapped_operands,
    "dtype lowered": lowered_dtype, "missed in-place write": missed_write, "wrong dimension": wrong_dimension,
    "wrong mask": wrong_mask, "off-by-one slice": off_by_one, "wrong eps": wrong_eps, "sign": wrong_sign,
}
