"""The values of the parameters of a function that torch.compile is given."""

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchtriage.lint.reach.model import TargetSite
from torchtriage.lint.types.values import (
    TENSOR,
    UNKNOWN,
    FunctionValue,
    PythonValue,
    TensorValue,
    Value,
    is_none,
    join,
)

if TYPE_CHECKING:
    from torchtriage.lint.reach.interpreter import Interpreter

# Attributes that only a tensor has, or that are far more common on tensors than on anything else in compiled code.
_OF_TENSORS = frozenset(
    {
        "shape",
        "size",
        "view",
        "reshape",
        "sum",
        "mean",
        "long",
        "unsqueeze",
        "squeeze",
        "transpose",
        "permute",
        "detach",
        "flatten",
        "abs",
        "pow",
        "exp",
        "norm",
        "dim",
        "chunk",
        "dtype",
        "device",
        "clamp",
        "argmax",
        "softmax",
        "sigmoid",
        "relu",
        "tanh",
        "log",
        "sqrt",
        "item",
        "tolist",
        "backward",
        "nonzero",
        "expand",
        "contiguous",
        "masked_fill",
        "T",
        "log_softmax",
        "square",
        "std",
        "var",
        "cumsum",
        "ndim",
        "new_zeros",
        "gather",
        "scatter",
        "roll",
        "mT",
        "numel",
        "isnan",
        "isfinite",
        "all",
        "any",
        "max",
        "min",
        "clone",
        "unbind",
        "requires_grad_",
        "cos",
        "sin",
        "bool",
        "add_",
    }
)


def entry_value(
    machine: "Interpreter",
    function: FunctionValue,
    site: TargetSite,
) -> tuple[tuple[Value, ...], Mapping[str, Value]]:
    """The arguments of a compiled function: those of its calls, else its annotations, defaults and use."""
    spec = function.node.args
    skip = 1 if function.bound is not None else 0
    parameters = [*spec.posonlyargs, *spec.args][skip + len(function.preset) :]
    num_defaults = len(spec.defaults)
    arguments: list[Value] = []
    named = dict(function.named)
    for number, parameter in enumerate(parameters):
        if parameter.arg in named:
            arguments.append(named[parameter.arg])
            continue
        has_default = number >= len(parameters) - num_defaults
        default = spec.defaults[number - len(parameters) + num_defaults] if has_default else None
        passed = [
            call.arguments[number] if number < len(call.arguments) else call.keywords.get(parameter.arg)
            for call in site.calls
            if not call.attribute
        ]
        arguments.append(_one(machine, function, parameter, passed, default, is_first=number == 0))
    keywords = {}
    for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if parameter.arg in named:
            continue
        passed = [call.keywords.get(parameter.arg) for call in site.calls if not call.attribute]
        keywords[parameter.arg] = _one(machine, function, parameter, passed, default)
    if spec.vararg is not None:
        arguments.append(TENSOR)
    return tuple(arguments), keywords


def _one(
    machine: "Interpreter",
    function: FunctionValue,
    parameter: ast.arg,
    passed: list[Value | None],
    default: ast.expr | None,
    *,
    is_first: bool = False,
) -> Value:
    known = [_without_constant(value) for value in passed if value is not None]
    is_complete = bool(passed) and len(known) == len(passed) and UNKNOWN not in known
    if is_complete:
        return join(known)
    annotated = machine.annotation(parameter.annotation, function.outer)
    if annotated is not None:
        return annotated
    known_values = [value for value in known if value != UNKNOWN]
    if default is not None:
        known_values.append(_without_constant(machine.evaluate(default, function.outer)))
    known_values = [value for value in known_values if not is_none(value)]
    if known_values:
        return join(known_values)
    if _names_another_type(parameter.annotation):
        return UNKNOWN
    if _is_used_as_tensor(function, parameter.arg):
        return TENSOR
    return TensorValue(sure=False) if is_first and default is None else UNKNOWN


def _names_another_type(annotation: ast.expr | None) -> bool:
    """Whether an annotation is the name of a class that is no tensor, such as a TensorDict."""
    name = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation) if annotation else ""
    last = str(name).rpartition(".")[2]
    is_class = last.isidentifier() and len(last) > 1 and last not in ("Any", "object", "ArrayLike", "TensorLike")
    return is_class and not last.endswith(("Tensor", "Array"))


def _without_constant(value: Value) -> Value:
    """A call with another number is to be expected."""
    if isinstance(value, PythonValue) and value.type != "None":
        return PythonValue(value.type, from_tensor=value.from_tensor)
    return value


def _is_used_as_tensor(function: FunctionValue, name: str) -> bool:
    """Whether the body uses a parameter as only a tensor can be used."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.Attribute) and _is_name(node.value, name) and node.attr in _OF_TENSORS:
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):  # noqa: SIM102 - two questions
            if _is_name(node.left, name) or _is_name(node.right, name):
                return True
        if isinstance(node, ast.Call) and node.args and _is_name(node.args[0], name) and _is_of_torch(function, node):
            return True
    return False


def _is_of_torch(function: FunctionValue, call: ast.Call) -> bool:
    """A call of a function of torch, or of a module that is an attribute of self."""
    dotted = function.file.dotted(call.func)
    if dotted.startswith("torch.") and not dotted.startswith(
        ("torch.compiler", "torch.full", "torch.zeros", "torch.ones")
    ):
        return dotted.rpartition(".")[0] in ("torch", "torch.nn.functional", "torch.linalg", "torch.special")
    is_own = isinstance(call.func, ast.Attribute) and _is_name(call.func.value, "self")
    return is_own and function.bound is not None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
