"""Evaluates the statements of a function or module in their order."""

import ast
from collections.abc import Callable, Sequence

from torchtriage.lint.reach.expressions import MAX_NAMES, is_named, known_items, python_types
from torchtriage.lint.reach.machine import MAX_STEPS, Machine
from torchtriage.lint.reach.objects import MODULE_CONTAINERS, held_modules
from torchtriage.lint.types.values import (
    TENSOR,
    UNKNOWN,
    ContainerValue,
    NameScope,
    ObjectValue,
    PythonValue,
    TensorValue,
    Value,
    element_of,
    join,
    options,
)


class StatementEvaluator(Machine):
    """Each method evaluates one kind of statement; it returns whether the next statement is reached."""

    def run(self, body: Sequence[ast.stmt], scope: NameScope) -> bool:
        for statement in body:
            self.num_steps += 1
            if self.num_steps > MAX_STEPS:
                return False
            method: Callable[[ast.stmt, NameScope], bool] | None
            method = getattr(self, f"_run_{type(statement).__name__.lower()}", None)
            if method is not None and not method(statement, scope):
                return False
        return True

    def _run_expr(self, node: ast.Expr, scope: NameScope) -> bool:
        self.evaluate(node.value, scope)
        return True

    def _run_assign(self, node: ast.Assign, scope: NameScope) -> bool:
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)
        return True

    def _run_annassign(self, node: ast.AnnAssign, scope: NameScope) -> bool:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value, scope), scope)
        return True

    def _run_augassign(self, node: ast.AugAssign, scope: NameScope) -> bool:
        read = ast.copy_location(ast.BinOp(left=node.target, op=node.op, right=node.value), node)
        self.assign(node.target, self.evaluate(read, scope), scope)
        return True

    def _run_return(self, node: ast.Return, scope: NameScope) -> bool:
        self.returns[-1].append(self.evaluate(node.value, scope) if node.value else UNKNOWN)
        return False

    def _run_raise(self, node: ast.Raise, scope: NameScope) -> bool:
        if node.exc is not None:
            self.evaluate(node.exc, scope)
        return False

    def _run_continue(self, node: ast.Continue, scope: NameScope) -> bool:
        return False

    def _run_break(self, node: ast.Break, scope: NameScope) -> bool:
        return False

    def _run_assert(self, node: ast.Assert, scope: NameScope) -> bool:
        self.evaluate(node.test, scope)
        if node.msg is not None:
            self.evaluate(node.msg, scope)
        return True

    def _run_if(self, node: ast.If, scope: NameScope) -> bool:
        self.evaluate(node.test, scope)
        known = self.truth(node.test, scope)
        if known is not None:
            return self.run(node.body if known else node.orelse, scope)
        before = dict(scope.names)
        self._narrow(node.test, scope)
        goes_on = self.run(node.body, scope)
        after_body, scope.names = scope.names, before
        else_goes_on = self.run(node.orelse, scope)
        if goes_on:
            scope.names = _joined(after_body, scope.names) if else_goes_on else after_body
        return goes_on or else_goes_on

    def _narrow(self, test: ast.expr, scope: NameScope) -> None:
        """In the body of `if isinstance(x, torch.Tensor)`, x is a tensor; of `isinstance(x, float)`, a number."""
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and len(test.args) == 2:
            named, class_ = test.args
            is_tensor = scope.file.dotted(class_) == "torch.Tensor"
            if test.func.id == "isinstance" and isinstance(named, ast.Name) and is_tensor:
                scope.names[named.id] = TENSOR
            elif test.func.id == "isinstance" and isinstance(named, ast.Name) and python_types(class_, scope):
                scope.names[named.id] = join(PythonValue(name) for name in python_types(class_, scope))

    def _run_for(self, node: ast.For, scope: NameScope) -> bool:
        iterated = self.evaluate(node.iter, scope)
        # What the first pass assigns is known in the second one.
        for element in _names_in_turn(iterated) or [self._element(iterated, node, scope)] * 2:
            before = dict(scope.names)
            self.assign(node.target, element, scope)
            self.run(node.body, scope)
            scope.names = _joined(before, scope.names)
        self.run(node.orelse, scope)
        return True

    _run_asyncfor = _run_for

    def _element(self, iterated: Value, node: ast.AST, scope: NameScope) -> Value:
        """What a loop over this value yields; an object of the project is asked for its __iter__."""
        if isinstance(iterated, ObjectValue) and held_modules(iterated) is None:
            return element_of(self.call(self.attribute(iterated, "__iter__", node, scope), (), {}, node, scope))
        return self.items_of(iterated)

    def _run_while(self, node: ast.While, scope: NameScope) -> bool:
        for _ in range(2):
            before = dict(scope.names)
            self.evaluate(node.test, scope)
            if self.truth(node.test, scope) is False:
                break
            self.run(node.body, scope)
            scope.names = _joined(before, scope.names)
        self.run(node.orelse, scope)
        return True

    def _run_try(self, node: ast.Try, scope: NameScope) -> bool:
        before = dict(scope.names)
        goes_on = self.run(node.body, scope)
        if goes_on:
            goes_on = self.run(node.orelse, scope)
        # In compiled code a handler is reached by a raise of the program; other errors do not come while it is traced.
        raises = any(isinstance(part, ast.Raise) for statement in node.body for part in ast.walk(statement))
        for handler in node.handlers if self.site is None or raises else ():
            after, scope.names = scope.names, _joined(before, scope.names)
            if self.run(handler.body, scope):
                scope.names = _joined(after, scope.names) if goes_on else scope.names
                goes_on = True
            else:
                scope.names = after
        return self.run(node.finalbody, scope) and goes_on

    _run_trystar = _run_try

    def _run_with(self, node: ast.With, scope: NameScope) -> bool:
        for item in node.items:
            entered = self.evaluate(item.context_expr, scope)
            if item.optional_vars is not None:
                value = UNKNOWN
                if isinstance(entered, ContainerValue) and entered.kind == "generator":
                    value = entered.element
                self.assign(item.optional_vars, value, scope)
        return self.run(node.body, scope)

    _run_asyncwith = _run_with

    def _run_match(self, node: ast.Match, scope: NameScope) -> bool:
        subject = self.evaluate(node.subject, scope)
        for case in node.cases:
            known = _matches(case.pattern, subject)
            if known is False:
                continue
            if known and case.guard is None:
                return self.run(case.body, scope)
            before = dict(scope.names)
            self.run(case.body, scope)
            scope.names = _joined(before, scope.names)
        return True

    def _run_functiondef(self, node: ast.FunctionDef, scope: NameScope) -> bool:
        scope.names[node.name] = self.define(node, scope)
        return True

    _run_asyncfunctiondef = _run_functiondef
    _run_classdef = _run_functiondef

    def assign(self, target: ast.expr, value: Value, scope: NameScope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value, scope)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, ContainerValue("list", element_of(value)), scope)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value, scope)
        elif isinstance(target, ast.Subscript):
            self._assign_item(target, value, scope)

    def _unpack(self, targets: Sequence[ast.expr], value: Value, scope: NameScope) -> None:
        items = value.items if isinstance(value, ContainerValue) else None
        is_exact = items is not None and len(items) == len(targets)
        for number, target in enumerate(targets):
            part = items[number] if items is not None and is_exact else element_of(value)
            self.assign(target, part, scope)

    def _assign_attribute(self, target: ast.Attribute, value: Value, scope: NameScope) -> None:
        for owner in options(self.evaluate(target.value, scope)):
            if isinstance(owner, ObjectValue):
                attributes = owner.instance.attributes
                known = attributes.get(target.attr)
                attributes[target.attr] = value if known is None else join((known, value))

    def _assign_item(self, target: ast.Subscript, value: Value, scope: NameScope) -> None:
        owner = self.evaluate(target.value, scope)
        index = self.evaluate(target.slice, scope)
        if self.current is not None:
            self.current.values[target] = UNKNOWN
        held = held_modules(owner)
        if held is not None and held.name in MODULE_CONTAINERS:
            self.grow(owner, held, [value], target.value, scope)
        if isinstance(owner, ContainerValue) and not isinstance(owner, TensorValue):
            known = join((element_of(owner), value)) if owner.items or owner.element != UNKNOWN else value
            keys = index if owner.keys == UNKNOWN else join((owner.keys, index))
            entries = _with_entry(owner, index, value)
            self._rebind(target.value, ContainerValue(owner.kind, known, None, keys, entries), scope)

    def _rebind(self, node: ast.expr, value: Value, scope: NameScope) -> None:
        if isinstance(node, ast.Name):
            holder: NameScope | None = scope
            while holder is not None and node.id not in holder.names:
                holder = holder.outer
            if holder is not None:
                holder.names[node.id] = value
        elif isinstance(node, ast.Attribute):
            self._assign_attribute(node, value, scope)


def _names_in_turn(iterated: Value) -> list[Value]:
    """The items of a short tuple of texts, functions or classes, or of pairs that begin with one."""
    items = known_items(iterated)
    if not items or len(items) > MAX_NAMES:
        return []
    names = [item.items[0] if isinstance(item, ContainerValue) and item.items else item for item in items]
    is_all = all(is_named(name) for name in names)
    return list(items) if is_all else []


def _matches(pattern: ast.pattern, subject: Value) -> bool | None:
    """Whether a case takes the subject, where the source gives both as texts."""
    if isinstance(pattern, ast.MatchOr):
        found = [_matches(part, subject) for part in pattern.patterns]
        return True if True in found else None if None in found else False
    text = subject.constant if isinstance(subject, PythonValue) else ...
    value = pattern.value if isinstance(pattern, ast.MatchValue) else None
    if isinstance(text, str) and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return text == value.value
    return None


def _with_entry(owner: ContainerValue, index: Value, value: Value) -> tuple[tuple[object, Value], ...] | None:
    """The entries of a dict after `owner[index] = value`; None once a key is not known."""
    constant = index.constant if isinstance(index, PythonValue) else ...
    if owner.kind != "dict" or owner.entries is None or constant is ...:
        return None
    return (*((key, known) for key, known in owner.entries if key != constant), (constant, value))


def _joined(first: dict[str, Value], second: dict[str, Value]) -> dict[str, Value]:
    """The names after two branches; a name that only one of them has keeps its value."""
    if first == second:
        return first
    merged = dict(first)
    for name, value in second.items():
        known = merged.get(name)
        merged[name] = value if known is None or known == value else join((known, value))
    return merged
