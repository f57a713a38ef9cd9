"""A graph cut after one of its operations, so that what follows cannot hide or change the value there."""

import operator
from collections.abc import Mapping
from typing import Any

from torchtriage.capture.operations.graphs.graph_walk import AUTOCAST


def operations(graph_module: Any) -> list[Any]:
    """The nodes that compute something, in order."""
    return [node for node in graph_module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]


def copied(graph_module: Any) -> Any:
    """A copy that a backend may change."""
    import copy

    import torch

    return torch.fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))


def cut_after(graph_module: Any, last: Any, values: Mapping[Any, Any]) -> Any:
    """The graph up to node `last`; it returns every tensor that a later operation, or the output, uses.

    `values` are those of an eager run: a tuple is returned by its tensors.
    """
    import torch

    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    included: list[Any] = []
    for node in graph_module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        _keep_places(copies[node])
        included.append(node)
        if node is last:
            break
    live = [node for node in included if node.op not in ("placeholder", "get_attr") and _is_live(node, copies, last)]
    outputs = []
    for node in live:
        outputs.extend(_tensor_nodes(graph, copies[node], values.get(node), _used_elements(node)))
    _leave_contexts(graph, copies)
    graph.output(tuple(outputs))
    return torch.fx.GraphModule(graph_module, graph)


def cut_before(graph_module: Any, node: Any) -> tuple[Any, dict[Any, Any]]:
    """(the graph up to the operation before this one, without outputs; its copy of each node)."""
    import torch

    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for earlier in graph_module.graph.nodes:
        if earlier is node:
            break
        copies[earlier] = graph.node_copy(earlier, copies.__getitem__)
    graph.output(())
    return torch.fx.GraphModule(graph_module, graph), copies


def alone(graph_module: Any, node: Any, value: Any) -> tuple[Any, list[Any]]:
    """(a graph of this operation only, the nodes whose values are its inputs)."""
    import torch

    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    inputs: list[Any] = []
    for source in node.all_input_nodes:
        if source.op == "get_attr":
            copies[source] = graph.node_copy(source)
        else:
            copies[source] = graph.placeholder(f"value_{len(inputs)}")
            inputs.append(source)
    copies[node] = graph.node_copy(node, copies.__getitem__)
    _keep_places(copies[node])
    graph.output(tuple(_tensor_nodes(graph, copies[node], value, _used_elements(node))))
    return torch.fx.GraphModule(graph_module, graph), inputs


def _is_live(node: Any, copies: Mapping[Any, Any], last: Any) -> bool:
    return node is last or any(user not in copies for user in node.users)


def _keep_places(node: Any) -> None:
    """Drop what belongs to the compile that made the graph, as fake tensors do; keep the source lines."""
    node.meta = {name: node.meta[name] for name in ("stack_trace", "nn_module_stack") if name in node.meta}


def _used_elements(node: Any) -> set[Any] | None:
    """The elements of a tuple that the graph uses: a backend may not support the others. None: all of them."""
    indices = [user.args[1] if user.target is operator.getitem else None for user in node.users]
    if not indices or any(type(index) is not int for index in indices):     # a tensor is indexed by getitem as well
        return None
    return set(indices)


def _tensor_nodes(graph: Any, node: Any, value: Any, used: set[Any] | None = None) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [node]
    if not isinstance(value, (tuple, list)):
        return []
    found = []
    for index, item in enumerate(value):
        if isinstance(item, (torch.Tensor, tuple, list)) and (used is None or index in used):
            found.extend(_tensor_nodes(graph, graph.call_function(operator.getitem, (node, index)), item))
    return found


def _leave_contexts(graph: Any, copies: dict[Any, Any]) -> None:
    """Leave the autocast contexts that are open at the cut."""
    open_contexts = [
        node for node in copies
        if getattr(node.target, "__name__", "") == AUTOCAST[0] and all(user not in copies for user in node.users)]
    for node in reversed(open_contexts):
        for user in node.users:
            graph.node_copy(user, copies.__getitem__)
