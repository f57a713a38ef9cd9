"""Evaluates what each torch.compile of a tree compiles."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.calls import CallEvaluator
from torchtriage.lint.reach.entry import entry_value
from torchtriage.lint.reach.expressions import ExpressionEvaluator
from torchtriage.lint.reach.hooks import hook_key
from torchtriage.lint.reach.machine import MAX_STEPS
from torchtriage.lint.reach.model import Hop, Reach, TargetSite
from torchtriage.lint.reach.objects import held_modules
from torchtriage.lint.reach.programs import Relevance, relevance_of
from torchtriage.lint.reach.statements import StatementEvaluator
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import (
    TENSOR,
    UNKNOWN,
    ClassValue,
    CompiledValue,
    DisabledValue,
    FunctionValue,
    LibraryObject,
    MethodValue,
    NameScope,
    ObjectValue,
    PropertyValue,
    Value,
    join,
    options,
)

MAX_OBJECTS = 4  # on which a decorated method is evaluated
_CACHE: list[tuple[SourceTree, Reach]] = []


class Interpreter(StatementEvaluator, ExpressionEvaluator, CallEvaluator):
    """All parts together."""

    def rebind(self, node: ast.expr, value: Value, scope: NameScope) -> None:
        self._rebind(node, value, scope)

    def explore(self, file: SourceFile, relevance: Relevance, *, roots: bool) -> None:
        """Evaluate each function of a file that leads to a torch.compile: `roots` are those that no other one names."""
        scope = self.module_scope(file)
        for name, value in list(scope.names.items()):
            if relevance.is_relevant(file, name) and (name not in relevance.mentioned) is roots:
                with self._limits(file, 1):
                    self._explore_value(value, scope)

    def _explore_value(self, value: Value, scope: NameScope) -> None:
        value = _plain(value)
        if isinstance(value, FunctionValue) and value.file is scope.file and value.bound is None:
            self._explore_function(value, scope)
        elif isinstance(value, ClassValue) and value.file is scope.file:
            made = self.call(value, (), {}, value.node, scope)
            for name, member in list(value.members.items()):
                if isinstance(_plain(member), FunctionValue) and isinstance(made, ObjectValue) and name != "__init__":
                    method = _plain(self._bound_member(made, name, scope))
                    if isinstance(method, FunctionValue):
                        self._explore_function(method, scope)

    def _bound_member(self, made: ObjectValue, name: str, scope: NameScope) -> Value:
        member = _plain(made.instance.of.members[name])
        if isinstance(member, FunctionValue):
            return FunctionValue(member.file, member.node, member.outer, made, member.owner)
        return UNKNOWN

    def _explore_function(self, function: FunctionValue, scope: NameScope) -> None:
        """Evaluate a function without arguments, unless the project calls it: then its arguments are known."""
        if function.node in self.entered:
            return
        with self.elsewhere():
            self.run_function(function, (), {}, function.node, scope)

    def follow(self, site: TargetSite) -> None:
        """Evaluate what a compile call compiles."""
        self.site, self.path = site, []
        scope = NameScope(site.file)
        try:
            with self._limits(site.file, site.line):
                for target in self._targets(site, scope):
                    self._enter(target, site, scope)
        finally:
            self.site = None

    @contextmanager
    def _limits(self, file: SourceFile, line: int) -> Iterator[None]:
        """Say where the source is nested too deeply, or too large, to be followed to its end."""
        depth, was_cut = self.depth, self.num_steps > MAX_STEPS
        try:
            yield
        except RecursionError:
            self.depth = depth
            self.reach.cut.append((file, line, "is nested too deeply to be followed"))
        if self.num_steps > MAX_STEPS and not was_cut:
            reason = f"leads to more than {MAX_STEPS:,} statements, the rest is not followed"
            self.reach.cut.append((file, line, reason))

    def _targets(self, site: TargetSite, scope: NameScope) -> list[Value]:
        """What the site compiles; a decorated method with the objects on which it is called, or with any object."""
        found: list[Value] = []
        for target in (*options(site.target), *site.closures):
            is_method = isinstance(target, FunctionValue) and target.owner is not None and target.bound is None
            if not is_method:
                found.append(target)
                continue
            assert isinstance(target, FunctionValue)
            assert target.owner is not None
            bound = site.bound[:MAX_OBJECTS]
            if not bound:
                made = self.call(target.owner, (), {}, target.owner.node, scope)
                bound = [FunctionValue(target.file, target.node, target.outer, made, target.owner)]
            found += bound
        return found

    def _enter(self, target: Value, site: TargetSite, scope: NameScope) -> None:
        if isinstance(target, ObjectValue):
            instance = target.instance
            saved = instance.attributes.pop("__call__", None)
            own = instance.attributes.get("forward")
            if isinstance(own, CompiledValue):
                del instance.attributes["forward"]
            method = self.attribute(target, "forward", site.node, scope)
            if not isinstance(method, FunctionValue):
                method = self.attribute(target, "__call__", site.node, scope)
            if saved is not None:
                instance.attributes["__call__"] = saved
            if own is not None:
                instance.attributes["forward"] = own
            self._enter_hooks(target, method, site, scope)
            target = method if isinstance(method, FunctionValue) else held_modules(target) or method
        if isinstance(target, CompiledValue):
            return
        if isinstance(target, FunctionValue):
            arguments, keywords = entry_value(self, target, site)
            self.run_function(target, arguments, keywords, site.node, scope)
        elif isinstance(target, LibraryObject):
            given = [call.arguments[0] for call in site.calls if call.arguments and call.arguments[0] != UNKNOWN]
            self.call(target, (join(given) if given else TENSOR,), {}, site.node, scope)


    def _enter_hooks(self, module: ObjectValue, method: Value, site: TargetSite, scope: NameScope) -> None:
        """The hooks of a module that is compiled itself run in its graph, around its forward."""
        if hook_key(module) in self.reach.hooks and isinstance(method, FunctionValue):
            arguments, _ = entry_value(self, method, site)
            self.path.append(Hop(method, site.file, site.node))
            self.run_hooks(module, arguments, UNKNOWN, site.node, scope)
            self.path.pop()


def _plain(value: Value) -> Value:
    """The function behind its decorators."""
    while True:
        if isinstance(value, (CompiledValue, DisabledValue, PropertyValue)):
            value = value.target
        elif isinstance(value, MethodValue) and value.name == "static":
            value = value.owner
        else:
            return value


def reach_of(tree: SourceTree) -> Reach:
    """The reach of a tree, worked out once."""
    for known, reach in _CACHE:
        if known is tree:
            return reach
    machine = Interpreter(tree)
    relevance = relevance_of(tree)
    files = [file for file in tree.files if file in relevance.names]
    tests = [file for file in files if is_test(file, tree)]
    # Tests come last: what only they call is evaluated as if nothing did.
    for group in ([file for file in files if file not in tests], tests):
        for file in group:
            machine.module_scope(file)
        for roots in (True, False):
            for file in group:
                machine.explore(file, relevance, roots=roots)
    number = 0
    while number < len(machine.reach.sites):  # following one may find another
        machine.follow(machine.reach.sites[number])
        number += 1
    _CACHE[:] = [(tree, machine.reach)]
    return machine.reach
