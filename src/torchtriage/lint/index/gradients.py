"""Which names of a function hold parameters, gradients or values made of them."""

import ast
import re
from collections.abc import Set

from torchtriage.lint.index.syntax import COMPREHENSIONS, last_name, own_nodes, target_names, text

_ITERATORS = ("parameters", "named_parameters", "buffers", "named_buffers")
_LISTS = re.compile(r"^(?:\w+_)?(?:grads|gradients|params|parameters)$")
# What a tensor is asked that needs no read from the device.
_ON_HOST = frozenset({
    "numel", "size", "shape", "dim", "ndim", "dtype", "device", "requires_grad", "is_cuda", "is_leaf", "name",
    "is_floating_point", "is_complex", "element_size", "nelement", "stride", "data_ptr", "is_contiguous", "nbytes",
})


def is_parameter_iterable(node: ast.AST, lists: Set[str] = frozenset()) -> bool:
    """Whether a loop over this expression takes one parameter or gradient of a model after the other."""
    if isinstance(node, ast.Name):
        return node.id in lists or bool(_LISTS.match(node.id))
    if isinstance(node, ast.Call):
        name = last_name(node)
        if name in _ITERATORS:
            return True
        if name in ("enumerate", "list", "tuple", "zip", "reversed", "sorted", "filter", "tqdm"):
            return any(is_parameter_iterable(argument, lists) for argument in node.args)
        return name in ("items", "values") and is_parameter_iterable(_receiver(node), lists)
    if isinstance(node, COMPREHENSIONS):
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and last_name(node.elt) == "grad":
            return True
        return is_parameter_iterable(node.generators[0].iter, lists)
    return isinstance(node, ast.Subscript) and text(node.slice) in ("'params'", '"params"')


def _appends_gradient(call: ast.Call) -> bool:
    return bool(call.args) and last_name(call.args[0]) == "grad"


def _receiver(call: ast.Call) -> ast.AST:
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def parameter_lists(scope: ast.AST) -> set[str]:
    """The names of a function that are bound to lists of parameters or gradients."""
    found: set[str] = set()
    for node in own_nodes(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            if is_parameter_iterable(node.value, found):
                found |= set(target_names(node))
        elif isinstance(node, ast.Call) and last_name(node) == "append" and _appends_gradient(node):
            found.add(text(_receiver(node)))
    return found


def parameter_names(scope: ast.AST) -> set[str]:
    """The names of a function that hold one parameter or gradient, or a value computed from it on its device."""
    lists = parameter_lists(scope)
    found: set[str] = set()
    for node in own_nodes(scope):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and is_parameter_iterable(node.iter, lists):
            found |= set(target_names(node))
    for node in own_nodes(scope):
        if (
            isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
            and node.value is not None
            and is_on_device(node.value, found)
        ):
            found |= set(target_names(node))
    return found


def is_on_device(node: ast.AST, tensors: set[str]) -> bool:
    """Whether an expression is, as far as the names say, a tensor made of one of these tensors."""
    if isinstance(node, ast.Name):
        return node.id in tensors
    if isinstance(node, ast.Attribute):
        if node.attr == "grad":
            return True
        return node.attr not in _ON_HOST and is_on_device(node.value, tensors)
    if isinstance(node, ast.Call):
        name = last_name(node)
        if name in _ON_HOST or name in ("item", "tolist", "numpy", "get", "format"):
            return False
        is_torch = isinstance(node.func, ast.Attribute)     # a plain name is a builtin or a function of the project
        parts = [*node.args, node.func.value] if isinstance(node.func, ast.Attribute) else []
        return is_torch and any(is_on_device(part, tensors) for part in parts)
    if isinstance(node, ast.BinOp):
        return is_on_device(node.left, tensors) or is_on_device(node.right, tensors)
    if isinstance(node, ast.UnaryOp):
        return is_on_device(node.operand, tensors)
    if isinstance(node, ast.Compare):
        is_elementwise = not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops)
        return is_elementwise and is_on_device(node.left, tensors)
    if isinstance(node, (ast.List, ast.Tuple)):
        return any(is_on_device(element, tensors) for element in node.elts)
    if isinstance(node, ast.Subscript):
        return is_on_device(node.value, tensors)
    return isinstance(node, ast.IfExp) and (is_on_device(node.body, tensors) or is_on_device(node.orelse, tensors))
