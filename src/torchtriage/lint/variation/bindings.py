"""Reaching definitions: the assignments that a name may have its value from at one place."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from torchtriage.lint.source import SourceFile

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
_GROWS = frozenset({"append", "extend", "add", "insert", "appendleft", "update", "pop", "popleft"})


class BindingKind(Enum):
    """How a statement gives a name its value."""

    ASSIGNED = "assigned"
    CHANGED = "changed"  # `t *= 0.9`: the earlier value takes part
    ITEM = "item"  # the target of a loop or comprehension
    PARAMETER = "parameter"
    GROWN = "grown"  # `items.append(x)`
    KEYED = "keyed"  # `table[key] = x`
    DEFINED = "defined"  # a function or class
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Binding:
    """One statement that binds a name."""

    kind: BindingKind
    node: ast.AST
    name: str
    value: ast.expr | None = None
    position: tuple[int, ...] = ()  # of the name in a target that is unpacked
    tests: tuple[ast.expr, ...] = ()  # the conditions that decide whether it is executed
    is_carried: bool = False  # from an earlier pass of a loop


def bindings(file: SourceFile, use: ast.AST, name: str) -> list[Binding]:
    """The bindings of a local name or parameter that may reach this use of it; empty for a name of the module."""
    found: list[Binding] = []
    child = use
    for parent in file.ancestors(use):
        if isinstance(parent, _COMPREHENSIONS):
            item = _comprehension_item(parent, child, name)
            if item is not None:
                return [*found, item]
        earlier, ends = _before(parent, child, name)
        found += earlier
        if ends:
            return found
        if isinstance(parent, FUNCTIONS):
            if _is_parameter(parent, name) and child not in _outside(parent):
                return [*found, Binding(BindingKind.PARAMETER, parent, name)]
            if found:
                return found
        child = parent
    return found


def _comprehension_item(node: ast.AST, child: ast.AST, name: str) -> Binding | None:
    for part in getattr(node, "generators", ()):
        position = _position(part.target, name)
        if position is not None and child is not part:
            return Binding(BindingKind.ITEM, part, name, part.iter, position)
    generators = list(getattr(node, "generators", ()))
    for part in generators[: generators.index(child)] if child in generators else ():
        position = _position(part.target, name)
        if position is not None:
            return Binding(BindingKind.ITEM, part, name, part.iter, position)
    return None


def _outside(function: ast.AST) -> Sequence[ast.AST]:
    """The parts of a function that are evaluated where it is defined."""
    return [*getattr(function, "decorator_list", ()), getattr(function, "args", function)]


def _is_parameter(function: ast.AST, name: str) -> bool:
    spec = getattr(function, "args", None)
    if not isinstance(spec, ast.arguments):
        return False
    rest = [each for each in (spec.vararg, spec.kwarg) if each is not None]
    return any(p.arg == name for p in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *rest))


def _before(parent: ast.AST, child: ast.AST, name: str) -> tuple[list[Binding], bool]:
    """The bindings of the statements in front of a child, and whether one of them is certain to be executed."""
    for field in _BLOCKS:
        block = getattr(parent, field, None)
        if isinstance(block, list) and child in block:
            number = block.index(child)
            found, ends = _at_end(block[:number], name)
            if not ends and isinstance(parent, _LOOPS) and field == "body":
                later, _ = _at_end(block[number:], name)
                found += [replace(each, is_carried=True) for each in later]
                position = _position(getattr(parent, "target", None), name)
                if position is not None and not isinstance(parent, ast.While):
                    return [*found, Binding(BindingKind.ITEM, parent, name, parent.iter, position)], True
            return found, ends
    return [], False


def _at_end(block: Sequence[ast.AST], name: str) -> tuple[list[Binding], bool]:
    """The bindings that hold after a block, and whether one of them is certain to be executed."""
    found: list[Binding] = []
    for statement in reversed(block):
        some, ends = _of_statement(statement, name)
        found += some
        if ends:
            return found, True
    return found, False


def _of_statement(node: ast.AST, name: str) -> tuple[list[Binding], bool]:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return _of_assignment(node, name)
    if isinstance(node, ast.If):
        body, body_ends = _at_end(node.body, name)
        other, other_ends = _at_end(node.orelse, name)
        marked = [replace(each, tests=(*each.tests, node.test)) for each in (*body, *other)]
        return marked, body_ends and other_ends
    if isinstance(node, _LOOPS):
        found, _ = _at_end(node.body, name)
        return found, False
    if isinstance(node, (ast.With, ast.AsyncWith)):
        if any(i.optional_vars is not None and _position(i.optional_vars, name) is not None for i in node.items):
            return [Binding(BindingKind.OTHER, node, name)], True
        return _at_end(node.body, name)
    if isinstance(node, ast.Try):
        found, ends = _at_end(node.body, name)
        for handler in node.handlers:
            found += _at_end(handler.body, name)[0]
        return found, ends
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return ([Binding(BindingKind.DEFINED, node, name)], True) if node.name == name else ([], False)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        if isinstance(called, ast.Attribute) and called.attr in _GROWS and _is_name(called.value, name):
            return [Binding(BindingKind.GROWN, node, name)], False
    return [], False


def _of_assignment(node: ast.Assign | ast.AnnAssign | ast.AugAssign, name: str) -> tuple[list[Binding], bool]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Subscript) and _is_name(target.value, name):
            return [Binding(BindingKind.KEYED, node, name, target.slice)], False
        position = _position(target, name)
        if position is None or node.value is None:
            continue
        if isinstance(node, ast.AugAssign):
            return [Binding(BindingKind.CHANGED, node, name, node.value)], False
        return [Binding(BindingKind.ASSIGNED, node, name, node.value, position)], True
    return [], False


def _position(target: ast.AST | None, name: str) -> tuple[int, ...] | None:
    """Where a name is in a target: empty for the target itself; None if it is not there."""
    if _is_name(target, name):
        return ()
    for number, part in enumerate(target.elts if isinstance(target, (ast.Tuple, ast.List)) else ()):
        inner = _position(part, name)
        if inner is not None:
            return (number, *inner)
    return None


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def repeats_around(file: SourceFile, node: ast.AST) -> Iterator[ast.AST]:
    """The loops and comprehensions around a node in its function, the nearest first."""
    child = node
    for parent in file.ancestors(node):
        if isinstance(parent, FUNCTIONS):
            return
        outside = parent.generators[0] if isinstance(parent, _COMPREHENSIONS) else getattr(parent, "iter", None)
        if isinstance(parent, (*_LOOPS, *_COMPREHENSIONS)) and child is not outside:
            yield parent
        child = parent


def names_of_target(target: ast.AST | None) -> set[str]:
    """The names that a loop gives new values; none for a `while`."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)} if target is not None else set()

def defaults_of(function: ast.AST) -> list[ast.expr]:
    """The expressions of the defaults of a function."""
    spec = getattr(function, "args", None)
    return [d for d in (*spec.defaults, *spec.kw_defaults) if d] if isinstance(spec, ast.arguments) else []


def argument_of(call: ast.Call, function: ast.AST, name: str) -> ast.expr | None:
    """The expression that a call passes for a parameter, or its default; None if that is not plain to see."""
    spec = getattr(function, "args", None)
    if not isinstance(spec, ast.arguments) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [p.arg for p in (*spec.posonlyargs, *spec.args)]
    position = names.index(name) if name in names else -1
    given = position - 1 if names[:1] in (["self"], ["cls"]) else position
    if position >= 0 and 0 <= given < len(call.args):
        return call.args[given]
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    keyword_defaults = {p.arg: d for p, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    return {**defaults, **keyword_defaults}.get(name)
