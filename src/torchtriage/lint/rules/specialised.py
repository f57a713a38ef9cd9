"""Whether compiled code needs the value of a Python number, so that each value is compiled."""

import ast
from collections.abc import Iterator

from torchtriage.lint.types.values import FunctionValue, ObjectValue

# Operators that take a Python number, and hold for this number.
_DROPOUT = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})
_KEYWORDS = frozenset({"label_smoothing", "eps", "momentum"})
_NUMBER_BUILTINS = frozenset({"int", "round", "str", "repr"})


def needs_int(function: FunctionValue, name: str) -> bool:
    """Whether the code uses a parameter as the bound of a range, or as an index into a list of values or modules."""
    for node in ast.walk(function.node):
        is_index = isinstance(node, ast.Subscript) and _is_name(node.slice, name)
        if isinstance(node, ast.Subscript) and is_index and _is_python_container(node.value, function):
            return True
        is_range = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
        if is_range and any(_is_name(inner, name) for inner in ast.walk(node)):
            return True
    return any(needs_int(inner, parameter) for inner, parameter in _passed_on(function, name))


def needs_float(function: FunctionValue, name: str) -> bool:
    """Whether a parameter reaches an operator that takes a Python float, or a function of math."""
    for node in ast.walk(function.node):
        if not isinstance(node, ast.Call):
            continue
        dotted = function.file.dotted(node.func)
        is_builtin = isinstance(node.func, ast.Name) and node.func.id in _NUMBER_BUILTINS
        is_computed = any(_is_name(inner, name) for argument in node.args for inner in ast.walk(argument))
        if is_computed and (dotted.startswith("math.") or is_builtin):
            return True
        given = node.args if dotted.rpartition(".")[2] in _DROPOUT else []
        if any(_is_name(argument, name) for argument in given):
            return True
        if dotted.startswith("torch.") and any(
            _is_name(k.value, name) and (k.arg in _KEYWORDS or dotted.rpartition(".")[2] in _DROPOUT)
            for k in node.keywords
        ):
            return True
    return any(needs_float(inner, parameter) for inner, parameter in _passed_on(function, name))


def _is_python_container(node: ast.expr, function: FunctionValue) -> bool:
    """A list or dict at the top of the file, or an attribute of the object that holds modules."""
    if isinstance(node, ast.Name):
        return isinstance(_global_value(function, node.id), (ast.List, ast.Tuple, ast.Dict))
    bound = function.bound
    if isinstance(node, ast.Attribute) and _is_name(node.value, "self") and isinstance(bound, ObjectValue):
        held = bound.instance.attributes.get(node.attr)
        name = getattr(held, "name", "")
        return name in ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ParameterList") or getattr(
            held, "kind", ""
        ) in ("list", "tuple", "dict")
    return False


def _global_value(function: FunctionValue, name: str) -> ast.expr | None:
    for statement in function.file.tree.body:
        if isinstance(statement, ast.Assign) and any(_is_name(target, name) for target in statement.targets):
            return statement.value
    return None


def _passed_on(function: FunctionValue, name: str) -> Iterator[tuple[FunctionValue, str]]:
    """The methods of the same object that receive a parameter unchanged, with the name that they give it."""
    members = function.owner.members if function.owner is not None else {}
    for node in ast.walk(function.node):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        member = members.get(node.func.attr) if _is_name(node.func.value, "self") else None
        if not isinstance(member, FunctionValue) or member.node is function.node:
            continue
        inner = FunctionValue(member.file, member.node, member.outer, function.bound, member.owner)
        for number, argument in enumerate(node.args):
            names = [parameter.arg for parameter in member.node.args.args][1:]
            if _is_name(argument, name) and number < len(names):
                yield inner, names[number]


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
