"""Abstract values: what the source alone says about the value of an expression."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchtriage.lint.source import SourceFile

MAX_OPTIONS = 6  # of a union; more say nothing
MAX_NESTING = 8         # containers in containers
MAX_NESTED = 2000       # of them in one


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of which nothing is known; the others say more."""


UNKNOWN = Value()


@dataclass(frozen=True, slots=True)
class TensorValue(Value):
    """A tensor; not `sure` where the source only makes it likely."""

    sure: bool = True
    dtype: str = ""  # bool, int or float; empty if unknown


@dataclass(frozen=True, slots=True)
class PythonValue(Value):
    """A Python value that is not a tensor: a number, a text, None, a dtype."""

    type: str
    constant: object = ...  # the value itself if the source says it
    from_tensor: bool = False  # a number that was read out of a tensor


@dataclass(frozen=True, slots=True)
class LibraryName(Value):
    """A name of an imported library, `torch.nn.Linear`."""

    name: str


@dataclass(frozen=True, slots=True)
class LibraryObject(Value):
    """An instance of a class of a library, or what a function of it returned."""

    name: str
    node: ast.AST | None = None  # the call that made it
    items: tuple[Value, ...] = ()  # its positional arguments


@dataclass(frozen=True, slots=True)
class ContainerValue(Value):
    """A list, tuple, dict, set or iterator; `items` if each of them is known, `entries` if each key of a dict is."""

    kind: str
    element: Value = UNKNOWN
    items: tuple[Value, ...] | None = None
    keys: Value = UNKNOWN
    entries: tuple[tuple[object, Value], ...] | None = None

    def at(self, key: Value) -> Value:
        """What a dict has under a key; if that is not known, any of its values."""
        constant = key.constant if isinstance(key, PythonValue) else ...
        return next((value for known, value in self.entries or () if known == constant), element_of(self))


@dataclass(eq=False, repr=False)
class NameScope:
    """The names of a function or module while it is evaluated, and those of the function around it."""

    file: SourceFile
    names: dict[str, Value] = field(default_factory=dict)
    outer: NameScope | None = None
    function: FunctionValue | None = None

    def find(self, name: str) -> Value | None:
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FunctionValue(Value):
    """A function of the project, with the names around it and the object that it is bound to."""

    file: SourceFile
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    outer: NameScope
    bound: Value | None = None
    owner: ClassValue | None = None
    preset: tuple[Value, ...] = ()  # of functools.partial
    named: tuple[tuple[str, Value], ...] = ()  # its keyword arguments

    @property
    def name(self) -> str:
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClassValue(Value):
    """A class of the project."""

    file: SourceFile
    node: ast.ClassDef
    outer: NameScope
    bases: tuple[Value, ...] = ()
    members: dict[str, Value] = field(default_factory=dict)


@dataclass(eq=False, slots=True, repr=False)
class InstanceValue:
    """An object of a class of the project; its attributes are filled while its methods are evaluated."""

    of: ClassValue
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObjectValue(Value):
    """A reference to an object of a class of the project."""

    instance: InstanceValue
    above: ClassValue | None = None  # `super()`: methods are looked up above this class


@dataclass(frozen=True, slots=True)
class DisabledValue(Value):
    """A function that torch.compiler.disable keeps out of graphs."""

    target: Value


@dataclass(frozen=True, slots=True)
class PropertyValue(Value):
    """A function that runs when its attribute is read."""

    target: Value


@dataclass(frozen=True, slots=True)
class CompiledValue(Value):
    """What torch.compile returned; `site` is the call, as an index into the sites of the reach."""

    target: Value
    site: int


@dataclass(frozen=True, slots=True)
class MethodValue(Value):
    """A method of a tensor, a container or an object of a library."""

    owner: Value
    name: str


@dataclass(frozen=True, slots=True)
class UnionValue(Value):
    """One of several values."""

    options: tuple[Value, ...]


NONE = PythonValue("None", None)
TENSOR = TensorValue()


def is_none(value: Value) -> bool:
    return isinstance(value, PythonValue) and value.type == "None"


def options(value: Value) -> tuple[Value, ...]:
    """Each value that it may be."""
    return value.options if isinstance(value, UnionValue) else (value,)


def join(values: Iterable[Value]) -> Value:
    """The value that is one of these."""
    found: list[Value] = []
    for value in values:
        for option in options(value):
            if option not in found:
                found.append(option)
    if len(found) > 1:
        found = [value for value in found if not is_none(value)]  # None is tested before it is used
    tensors = [value for value in found if isinstance(value, TensorValue)]
    if len(tensors) > 1:
        dtype = tensors[0].dtype if len({t.dtype for t in tensors}) == 1 else ""
        merged = TensorValue(all(t.sure for t in tensors), dtype)
        found = [value for value in found if not isinstance(value, TensorValue)] + [merged]
    numbers = [value for value in found if isinstance(value, PythonValue)]
    if len(numbers) > 1 and len({n.type for n in numbers}) == 1:
        merged_number = PythonValue(numbers[0].type, from_tensor=all(n.from_tensor for n in numbers))
        found = [value for value in found if not isinstance(value, PythonValue)] + [merged_number]
    if not found:
        return UNKNOWN
    if len(found) == 1:
        return found[0]
    if tensors and len(found) > 1:
        rest = [value for value in found if not isinstance(value, TensorValue)]
        return UnionValue((*rest, replace(tensors[0], sure=False))) if len(rest) < MAX_OPTIONS else UNKNOWN
    return UnionValue(tuple(found)) if len(found) <= MAX_OPTIONS else UNKNOWN


def is_too_nested(values: Iterable[Value]) -> bool:
    """Whether a container of these would be too deep: to compare two takes time that doubles with each level."""
    waiting, number = [(value, 1) for value in values], 0
    while waiting:
        value, depth = waiting.pop()
        for option in options(value):
            if not isinstance(option, ContainerValue):
                continue
            number += 1
            if depth >= MAX_NESTING or number > MAX_NESTED:
                return True
            waiting += [(inner, depth + 1) for inner in (option.element, option.keys, *(option.items or ()))]
    return False


def tensor_in(value: Value) -> TensorValue | None:
    """The tensor that a value is or may be."""
    return next((option for option in options(value) if isinstance(option, TensorValue)), None)


def element_of(value: Value) -> Value:
    """The value of one item when it is iterated or indexed."""
    parts: list[Value] = []
    for option in options(value):
        if isinstance(option, ContainerValue):
            parts.append(join(option.items) if option.items else option.element)
        elif isinstance(option, TensorValue):
            parts.append(replace(option))
        else:
            parts.append(UNKNOWN)
    return join(parts)
