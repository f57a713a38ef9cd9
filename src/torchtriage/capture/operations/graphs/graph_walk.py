"""Runs an fx graph one operation at a time, as it is or in float64."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LOW_METHODS = {"float": "double", "half": "double", "bfloat16": "double"}
AUTOCAST = ("_enter_autocast", "_exit_autocast")


Call = Callable[[Any, Any, Any], Any]
Visit = Callable[[Any, Any], None]


def walk(graph_module: Any, arguments: Sequence[Any], call: Call, visit: Visit) -> Any:
    """Run the graph, with call(node, args, kwargs) for each operation and visit(node, value) after it."""
    from torch.fx.node import map_arg

    values: dict[Any, Any] = {}
    given = iter(arguments)
    for node in graph_module.graph.nodes:
        if node.op == "output":
            return map_arg(node.args[0], values.__getitem__)
        if node.op == "placeholder":
            values[node] = next(given)
            continue
        if node.op == "get_attr":
            values[node] = attribute(graph_module, node.target)
            continue
        args = map_arg(node.args, values.__getitem__)
        kwargs = map_arg(node.kwargs, values.__getitem__)
        values[node] = call(node, args, kwargs)
        visit(node, values[node])
    raise AssertionError("the graph has no output")


def no_visit(_: Any, __: Any) -> None:
    """For a run of which only the result is wanted."""


def attribute(graph_module: Any, target: str) -> Any:
    value = graph_module
    for name in target.split("."):
        value = getattr(value, name)
    return value


def caller(graph_module: Any) -> Call:
    """The operation of a node, as eager code runs it."""
    def call(node: Any, args: Any, kwargs: Any) -> Any:
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        function = attribute(graph_module, node.target) if node.op == "call_module" else node.target
        return function(*args, **kwargs)

    return call


def eager(graph_module: Any, visit: Visit = no_visit) -> Callable[..., Any]:
    """The graph as a function that runs its operations one by one."""
    def run(*arguments: Any) -> Any:
        with grad_mode_kept():
            return walk(graph_module, arguments, caller(graph_module), visit)

    return run


def in_double(graph_module: Any) -> Callable[..., Any]:
    """The graph as a function that computes every floating-point value in float64, whatever dtype the program asks."""
    plain = caller(graph_module)

    def call(node: Any, args: Any, kwargs: Any) -> Any:
        if getattr(node.target, "__name__", "") in AUTOCAST:
            return None
        if node.op == "call_method" and node.target in LOW_METHODS:
            return args[0].double()
        return _doubled(plain(node, _dtypes_doubled(args), _dtypes_doubled(kwargs)))

    def run(*arguments: Any) -> Any:
        import torch

        with grad_mode_kept(), torch.autocast("cpu", enabled=False):
            return walk(graph_module, arguments, call, no_visit)

    return run


@contextlib.contextmanager
def grad_mode_kept() -> Iterator[None]:
    """Restore the grad mode, which a graph that was cut may leave changed."""
    import torch

    with torch.set_grad_enabled(torch.is_grad_enabled()):
        yield


def _dtypes_doubled(value: Any) -> Any:
    import torch

    if isinstance(value, torch.dtype):
        return torch.float64 if value in (torch.float16, torch.bfloat16, torch.float32) else value
    if type(value) in (tuple, list):
        return type(value)(map(_dtypes_doubled, value))
    if isinstance(value, dict):
        return {key: _dtypes_doubled(item) for key, item in value.items()}
    return value


def _doubled(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(map(_doubled, value))
    return value
