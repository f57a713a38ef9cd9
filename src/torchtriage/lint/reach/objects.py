"""Functions, classes, objects of the project, with their attributes."""

import ast
from collections.abc import Iterator, Sequence

from torchtriage.lint.reach.machine import Machine
from torchtriage.lint.reach.model import SiteCall
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.torch_calls import BOOL, attribute_of_name, module_attribute, tensor_attribute
from torchtriage.lint.types.values import (
    UNKNOWN,
    ClassValue,
    CompiledValue,
    ContainerValue,
    DisabledValue,
    FunctionValue,
    InstanceValue,
    LibraryName,
    LibraryObject,
    MethodValue,
    NameScope,
    ObjectValue,
    PropertyValue,
    PythonValue,
    TensorValue,
    Value,
    join,
    options,
)

MODULE = "torch.nn.Module"
MODULE_CONTAINERS = frozenset({"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"})
_HELD = "*"     # the attribute, which no source can name, of an object whose class is derived from a container
_STATIC = frozenset({"builtins.staticmethod", "abc.abstractstaticmethod"})
_PROPERTIES = frozenset({"builtins.property", "functools.cached_property", "torch.jit.unused_property"})
# Decorators that give back a function which does the same, as far as the compiler follows it.
_TRANSPARENT = (
    "torch.no_grad",
    "torch.inference_mode",
    "torch.enable_grad",
    "torch.set_grad_enabled",
    "functools.wraps",
    "typing.",
    "abc.",
    "builtins.classmethod",
    "torch.autocast",
    "torch.amp.",
    "torch.cuda.amp.",
    "override",
    "torch.profiler.record_function",
    "dataclasses.",
    "torch.autograd.profiler.record_function",
    "torch.jit.export",
    "torch.jit.unused",
    "typing_extensions.",
    "jaxtyping.",
    "beartype.",
    "contextlib.ContextDecorator",
)


class ObjectEvaluator(Machine):
    """Definitions, attributes, instances."""

    def module_scope(self, file: SourceFile) -> NameScope:
        """The names at the top of a file, evaluated when they are first asked for."""
        if file not in self.modules:
            scope = self.modules[file] = NameScope(file)
            with self.elsewhere():
                self.run(file.tree.body, scope)
        return self.modules[file]

    def define(self, node: ast.stmt, scope: NameScope) -> Value:
        if isinstance(node, ast.ClassDef):
            return self._class(node, scope)
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        return self._decorated(FunctionValue(scope.file, node, scope), node, scope)

    def _class(self, node: ast.ClassDef, scope: NameScope) -> ClassValue:
        bases = tuple(self.evaluate(base, scope) for base in node.bases)
        made = ClassValue(scope.file, node, scope, bases)
        inner = NameScope(scope.file, made.members, scope)
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                method = FunctionValue(scope.file, statement, scope, owner=made)
                made.members[statement.name] = self._decorated(method, statement, inner)
            elif isinstance(statement, ast.AnnAssign) and statement.value is None:
                if isinstance(statement.target, ast.Name):
                    made.members.setdefault(
                        statement.target.id, self.annotation(statement.annotation, scope) or UNKNOWN
                    )
            else:
                self.run([statement], inner)
        self._decorate_class(made, scope)
        return made

    def _decorate_class(self, made: ClassValue, scope: NameScope) -> None:
        """Call the decorators of the project, which may put the class into a table of classes."""
        for decorator in reversed(made.node.decorator_list):
            for value in options(self.evaluate(decorator, scope)):
                if isinstance(value, FunctionValue):
                    self.call(value, (made,), {}, decorator, scope)

    def _decorated(self, function: Value, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: NameScope) -> Value:
        for decorator in reversed(node.decorator_list):
            value = self.evaluate(decorator, scope)
            if isinstance(value, LibraryName) and value.name in _STATIC:
                members = function
                function = MethodValue(members, "static")
            elif isinstance(value, LibraryName) and value.name in _PROPERTIES:
                function = PropertyValue(function)
            elif isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter", "getter"):
                return scope.names.get(node.name, UNKNOWN)
            elif not self._is_transparent(value):
                result = join([self.call(o, (function,), {}, decorator, scope) for o in options(value)])
                function = function if result == UNKNOWN else result
        return function

    def _is_transparent(self, value: Value) -> bool:
        return isinstance(value, (LibraryName, LibraryObject)) and value.name.startswith(_TRANSPARENT)

    def attribute(self, value: Value, name: str, node: ast.AST, scope: NameScope) -> Value:
        return join(self._attribute(option, name, node, scope) for option in options(value))

    def _attribute(self, value: Value, name: str, node: ast.AST, scope: NameScope) -> Value:
        if isinstance(value, ObjectValue):
            return self._object_attribute(value, name, node, scope)
        if isinstance(value, TensorValue):
            found = tensor_attribute(value, name)
            return MethodValue(value, name) if found is None else found
        if isinstance(value, LibraryName):
            file = self.tree.module(value.name, scope.file)
            if file is not None and not value.name.startswith(("torch.", "builtins.")) and value.name != "torch":
                names = self.module_scope(file).names
                return names.get(name, LibraryName(f"{value.name}.{name}"))
            return attribute_of_name(f"{value.name}.{name}")
        if isinstance(value, CompiledValue):
            return self._compiled_attribute(value, name, node, scope)
        if isinstance(value, ContainerValue) and name in ("values", "indices", "Q", "R", "U", "S", "V"):  # noqa: SIM102 - two questions
            if isinstance(value.element, TensorValue) and value.kind == "tuple":
                return value.element
        if isinstance(value, LibraryObject) and value.name.startswith("torch.nn."):
            known = module_attribute(name)
            return MethodValue(value, name) if known is None else known
        if isinstance(value, (LibraryObject, ContainerValue)):
            return MethodValue(value, name)
        if isinstance(value, (FunctionValue, ClassValue)) and name == "__name__":
            return PythonValue("str", getattr(value.node, "name", "<lambda>"))
        if isinstance(value, ClassValue):
            found = find_member(value, name)
            if found is None and name == "apply" and "torch.autograd.Function" in library_bases(value):
                return MethodValue(value, name)
            return UNKNOWN if found is None else found
        return UNKNOWN

    def _compiled_attribute(self, value: CompiledValue, name: str, node: ast.AST, scope: NameScope) -> Value:
        if name in ("forward", "__call__"):
            return value
        if name == "_orig_mod":
            return value.target
        found = self.attribute(value.target, name, node, scope)
        call = scope.file.parent(node)
        if self.site is None and isinstance(found, FunctionValue) and isinstance(call, ast.Call) and call.func is node:
            site = self.reach.sites[value.site]
            if all(known.node is not call for known in site.calls):
                site.calls.append(SiteCall(scope.file, call, (), {}, attribute=name))
        return found

    def _object_attribute(self, owner: ObjectValue, name: str, node: ast.AST, scope: NameScope) -> Value:
        instance = owner.instance
        if owner.above is None and name in instance.attributes:
            return instance.attributes[name]
        if name == "__class__":
            return instance.of
        found = find_member(instance.of, name, above=owner.above)
        if found is None:
            if is_module(instance.of):
                known = module_attribute(name) if library_bases(instance.of) - {MODULE} else None
                if known is not None:
                    return known
                return BOOL if name == "training" else MethodValue(ObjectValue(instance), name)
            return UNKNOWN
        return self._bound(found, ObjectValue(instance), node, scope)

    def _bound(self, member: Value, owner: ObjectValue, node: ast.AST, scope: NameScope) -> Value:
        if isinstance(member, PropertyValue):
            bound = self._bound(member.target, owner, node, scope)
            return self.call(bound, (), {}, node, scope)
        if isinstance(member, FunctionValue) and member.bound is None:
            return FunctionValue(
                member.file, member.node, member.outer, owner, member.owner, member.preset, member.named
            )
        if isinstance(member, MethodValue) and member.name == "static":
            return member.owner
        if isinstance(member, CompiledValue):
            return CompiledValue(self._bound(member.target, owner, node, scope), member.site)
        if isinstance(member, DisabledValue):
            return DisabledValue(self._bound(member.target, owner, node, scope))
        return member


def lineage(class_: ClassValue) -> Iterator[ClassValue]:
    """The class and its bases of the project, in the order in which attributes are looked up."""
    seen: list[ClassValue] = []
    waiting: list[Value] = [class_]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, ClassValue) and value not in seen:
            seen.append(value)
            waiting = [*value.bases, *waiting]
            yield value


def find_member(class_: ClassValue, name: str, above: ClassValue | None = None) -> Value | None:
    """A method or attribute of a class, from the class or its bases; `above` a class for super()."""
    classes = list(lineage(class_))
    if above in classes:
        classes = classes[classes.index(above) + 1 :]
    return next((each.members[name] for each in classes if name in each.members), None)


def library_bases(class_: ClassValue) -> set[str]:
    """The names of the bases that come from libraries."""
    return {base.name for each in lineage(class_) for base in each.bases if isinstance(base, LibraryName)}


def is_module(class_: ClassValue) -> bool:
    """Whether the objects of a class are modules of torch, as far as its bases show."""
    return any(
        name == MODULE
        or (name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper())
        or name.endswith((".LightningModule", ".PreTrainedModel", ".BaseFeaturesExtractor"))
        for name in library_bases(class_)
    )


def module_items(owner: LibraryObject) -> list[Value]:
    """The modules in an nn.Sequential, nn.ModuleList or nn.ModuleDict."""
    found: list[Value] = []
    for item in owner.items:
        containers = [option for option in options(item) if isinstance(option, ContainerValue)]
        if not containers:
            found.append(item)
        for container in containers:
            inside = container.items if container.items is not None else (container.element,)
            found += inside if len(containers) == 1 else [value for value in inside if value != UNKNOWN]
    return found


def hold_modules(instance: InstanceValue, arguments: Sequence[Value], node: ast.AST) -> None:
    """Keep what a subclass of nn.Sequential, nn.ModuleList or nn.ModuleDict gives to the __init__ of its base."""
    for name in library_bases(instance.of) & MODULE_CONTAINERS:
        instance.attributes[_HELD] = LibraryObject(name, node, tuple(arguments))


def held_modules(value: Value) -> LibraryObject | None:
    """The container of modules that a value is, or that the base of its class makes it."""
    if isinstance(value, ObjectValue):
        held = value.instance.attributes.get(_HELD)
        return held if isinstance(held, LibraryObject) else None
    return value if isinstance(value, LibraryObject) else None
