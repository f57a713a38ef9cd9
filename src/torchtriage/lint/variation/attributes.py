"""Describes attributes or items: fields of the object itself, layouts of tensors, parts of containers."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchtriage.lint.source import SourceFile
from torchtriage.lint.variation.kinds import UNKNOWN_KIND, ValueKind, any_varies, changing, kinds

if TYPE_CHECKING:
    from torchtriage.lint.variation.describe import Describer, Viewpoint

_UNKNOWN = (UNKNOWN_KIND,)


def describe_attribute(describer: "Describer", node: ast.Attribute, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    dotted = frame.file.dotted(node)
    if dotted:
        definition = describer.tree.definition(dotted, frame.file)
        if definition is None and dotted.startswith("torch."):
            return (ValueKind(type="function", values=(dotted,)),)
        return _UNKNOWN
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        return _own_field(describer, node, frame)
    owner = describer.describe(node.value, frame)
    if node.attr in ("T", "mT", "H", "mH"):
        return tuple(transposed(kind) if kind.type in ("tensor", "") else UNKNOWN_KIND for kind in owner)
    if node.attr == "value" and any(kind.type == "enum" for kind in owner):
        return (ValueKind(type="int", varies=any_varies(owner)),)
    return _UNKNOWN


def transposed(kind: ValueKind) -> ValueKind:
    """A tensor with its dimensions in another order."""
    sizes = kind.sizes[::-1] if kind.sizes is not None and len(kind.sizes) == 2 else None
    return replace(kind, type="tensor", is_transposed=not kind.is_transposed, sizes=sizes)


def _own_field(describer: "Describer", node: ast.Attribute, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    """`self.temperature`: varies if a method changes it from its own value; else what __init__ gives it."""
    class_ = frame.file.enclosing_class(node)
    if class_ is None:
        return _UNKNOWN
    found: list[ValueKind] = []
    changes = False
    for method, value, is_change in _assignments(class_, node.attr, frame.file):
        if is_change:
            changes = True
        elif method == "__init__":
            found += describer.describe(value, replace(frame, use=value))
        else:
            return _UNKNOWN
    known = kinds(found)
    if changes:
        return tuple(changing(kind) if kind.type in ("int", "float") else UNKNOWN_KIND for kind in known)
    return known


def _assignments(class_: ast.ClassDef, name: str, file: SourceFile) -> Iterator[tuple[str, ast.expr, bool]]:
    """(method, value, whether it is made of the value before) for each assignment to a field of self."""
    for statement in file.of_type(ast.Assign, ast.AugAssign, ast.AnnAssign):
        assert isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        if statement.value is None or file.enclosing_class(statement) is not class_:
            continue
        for target, value in _pairs(statement):
            if not _is_own(target, name):
                continue
            method = file.enclosing_function(statement)
            uses_itself = isinstance(statement, ast.AugAssign) or any(_is_own(n, name) for n in ast.walk(value))
            yield getattr(method, "name", ""), value, uses_itself


def _pairs(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr]]:
    assert node.value is not None
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _is_own(node: ast.AST, name: str) -> bool:
    is_self = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return is_self and getattr(node, "attr", "") == name


def describe_item(describer: "Describer", node: ast.Subscript, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    index = node.slice
    found: list[ValueKind] = []
    for owner in describer.describe(node.value, frame):
        if owner.type == "tensor":
            found.append(_of_tensor(describer, owner, index, frame))
        elif isinstance(index, ast.Slice):
            bounds = [kind for part in (index.lower, index.upper) for kind in describer.describe(part, frame)]
            varies = any_varies(bounds)
            is_list = owner.type == "list"
            found.append(replace(owner, parts=(), length_varies=owner.length_varies or varies) if is_list else
                         ValueKind(type=owner.type, size_varies=varies))
        elif owner.parts and isinstance(index, ast.Constant) and isinstance(index.value, int):
            inside = -len(owner.parts) <= index.value < len(owner.parts)
            found += owner.parts[index.value] if inside else _UNKNOWN
        else:
            is_chosen = any_varies(describer.describe(index, frame))
            found += owner.item if is_chosen and owner.item else _UNKNOWN
    return kinds(found)


def _of_tensor(describer: "Describer", owner: ValueKind, index: ast.expr, frame: "Viewpoint") -> ValueKind:
    """One index removes a dimension, None adds one, a slice keeps it."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    sizes = list(owner.sizes) if owner.sizes is not None else None
    varies, is_cut, position = False, False, 0
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is None:
            if sizes is not None:
                sizes.insert(position, ValueKind(type="int", values=(1,)))
            position += 1
        elif isinstance(part, ast.Slice):
            bounds = [kind for bound in (part.lower, part.upper) for kind in describer.describe(bound, frame)]
            varies = varies or any_varies(bounds)
            is_cut = is_cut or (part.lower is not None or part.upper is not None)
            if sizes is not None and (part.lower or part.upper) and position < len(sizes):
                sizes[position] = ValueKind(type="int", varies=any_varies(bounds))
            position += 1
        elif all(kind.type == "int" for kind in describer.describe(part, frame)):
            if sizes is not None and position < len(sizes):
                del sizes[position]
        else:
            return ValueKind(type="tensor", dtype=owner.dtype, size_varies=varies)
    known = None if sizes is None else tuple(sizes)
    return replace(owner, sizes=known, size_varies=(owner.size_varies and not is_cut) or varies)
