"""Describes what an expression is from call to call: backwards from its place, through loops, through callers."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product

from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.model import Reach
from torchtriage.lint.source import SourceFile
from torchtriage.lint.variation.attributes import describe_attribute, describe_item
from torchtriage.lint.variation.bindings import (
    FUNCTIONS,
    Binding,
    BindingKind,
    argument_of,
    bindings,
    defaults_of,
    names_of_target,
    repeats_around,
)
from torchtriage.lint.variation.calls import describe_call
from torchtriage.lint.variation.kinds import (
    EARLIER,
    TENSOR_KIND,
    UNKNOWN_KIND,
    ValueKind,
    any_varies,
    constant,
    kinds,
    merged,
    number_type,
)

MAX_CALLERS = 6     # of one function
MAX_CALLS = 5       # nested: callers of callers, or functions that a helper calls
MAX_REPEATS = 24    # calls that are asked for a loop around them
MAX_STEPS = 4_000   # in one description
MAX_NESTING = 6     # lists in lists: to compare two takes time that doubles with each level
UNKNOWN_KINDS = (UNKNOWN_KIND,)


@dataclass(frozen=True, eq=False)
class Viewpoint:
    """A place from which expressions are described; `given` are the arguments of its function if they are known."""

    file: SourceFile
    use: ast.AST    # loops around it repeat it
    given: Mapping[str, tuple[ValueKind, ...]] = field(default_factory=dict)
    function: ast.AST | None = None     # to which the arguments are given

    def repeats(self, node: ast.AST) -> bool:
        """Whether a loop, or the comprehension of a `for` part, repeats the use."""
        loop = self.file.parent(node) if isinstance(node, ast.comprehension) else node
        return any(loop is parent for parent in self.file.ancestors(self.use))


class Describer:
    """Each method describes one kind of expression."""

    def __init__(self, tree: SourceTree, reach: Reach) -> None:
        self.tree = tree
        self.reach = reach
        self._num_steps = 0
        self._num_calls = 0
        self._num_lists = 0     # around the expression
        self._active: set[tuple[int, int]] = set()

    def of(self, node: ast.expr, file: SourceFile) -> tuple[ValueKind, ...]:
        """The kinds of value of an expression at its place."""
        self._num_steps = 0
        return self.describe(node, Viewpoint(file, node))

    @contextmanager
    def entered(self) -> Iterator[bool]:
        """Enter a caller or a helper; whether that is not nested too deeply."""
        self._num_calls += 1
        try:
            yield self._num_calls <= MAX_CALLS
        finally:
            self._num_calls -= 1

    def describe(self, node: ast.expr | None, frame: Viewpoint) -> tuple[ValueKind, ...]:
        key = (id(node), id(frame.function))
        self._num_steps += 1
        if node is None or self._num_steps > MAX_STEPS:
            return UNKNOWN_KINDS
        if key in self._active:
            return (EARLIER,)
        method: Callable[[ast.expr, Viewpoint], tuple[ValueKind, ...]] | None
        method = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if method is None:
            return UNKNOWN_KINDS
        self._active.add(key)
        try:
            return kinds(method(node, frame))
        finally:
            self._active.discard(key)

    def items(self, node: ast.expr, frame: Viewpoint) -> tuple[ValueKind, ...]:
        """What a loop over this expression yields."""
        found: list[ValueKind] = []
        for each in self.describe(node, frame):
            found += each.item or UNKNOWN_KINDS
        return kinds(found)

    def _of_constant(self, node: ast.Constant, frame: Viewpoint) -> tuple[ValueKind, ...]:
        name = "None" if node.value is None else type(node.value).__name__
        return (ValueKind(type=name, values=(node.value,)),)

    def _of_name(self, node: ast.Name, frame: Viewpoint) -> tuple[ValueKind, ...]:
        reaching = bindings(frame.file, node, node.id)
        if not reaching:
            return self._of_global(node, frame)
        for binding in reaching:
            if binding.tests and not any(any_varies(self.describe(test, frame)) for test in binding.tests):
                return UNKNOWN_KINDS    # a condition of the configuration: one of them, but which
        bases = [b for b in reaching if b.kind not in (BindingKind.GROWN, BindingKind.KEYED, BindingKind.CHANGED)]
        found = [kind for each in bases for kind in self._of_binding(each, frame)]
        for binding in reaching:
            if binding not in bases and self._is_effective(binding, bases, frame):
                found = [_changed(kind, binding, self.describe(binding.value, frame)) for kind in found]
        return kinds(found)

    def _is_effective(self, binding: Binding, bases: Sequence[Binding], frame: Viewpoint) -> bool:
        """Whether the change differs from use to use: it adds up over a loop around both, or depends on one."""
        if binding.kind is BindingKind.KEYED:
            names = {n.id for n in ast.walk(binding.value) if isinstance(n, ast.Name)} if binding.value else set()
            loops = [loop for loop in repeats_around(frame.file, binding.node) if frame.repeats(loop)]
            return any(names & names_of_target(getattr(loop, "target", None)) for loop in loops)
        if binding.kind is BindingKind.CHANGED and any_varies(self.describe(binding.value, frame)):
            return True
        inside = {id(node) for base in bases for node in (base.node, *frame.file.ancestors(base.node))}
        return any(
            frame.repeats(loop) and id(loop) not in inside for loop in repeats_around(frame.file, binding.node)
        )

    def _of_binding(self, binding: Binding, frame: Viewpoint) -> tuple[ValueKind, ...]:
        if binding.kind is BindingKind.PARAMETER:
            return self.parameter(binding.node, binding.name, frame)
        if binding.kind is BindingKind.ITEM and binding.value is not None:
            found = _part(self.items(binding.value, frame), binding.position)
            return found if frame.repeats(binding.node) else tuple(map(constant, found))
        if binding.kind is BindingKind.ASSIGNED:
            found = _part(self.describe(binding.value, frame), binding.position)
            is_remade = self._is_remade(binding.node, frame)
            return found if is_remade else tuple(constant(k) for k in found if k.type != "fresh")
        return (ValueKind(type="function"),) if binding.kind is BindingKind.DEFINED else UNKNOWN_KINDS

    def _is_remade(self, node: ast.AST, frame: Viewpoint) -> bool:
        """Whether a statement is executed again for each use: a loop repeats both, or repeats its function."""
        if any(frame.repeats(loop) for loop in repeats_around(frame.file, node)):
            return True
        function = frame.file.enclosing_function(node)
        return function is not None and (function is frame.function or self.is_repeated(frame.file, function))

    def is_repeated(self, file: SourceFile, node: ast.AST) -> bool:
        """Whether a loop executes a node again, or a caller of its function."""
        waiting, seen = [(file, node)], {node}
        for place, each in waiting:
            is_function = isinstance(each, FUNCTIONS)
            if not is_function and next(repeats_around(place, each), None) is not None:
                return True
            function = each if is_function else place.enclosing_function(each)
            callers = self.reach.callers.get(function, ()) if function is not None else ()
            for caller, call in callers if len(waiting) < MAX_REPEATS else ():
                if isinstance(call, ast.Call) and call not in seen:
                    seen.add(call)
                    waiting.append((caller, call))
        return False

    def parameter(self, function: ast.AST, name: str, frame: Viewpoint) -> tuple[ValueKind, ...]:
        """A parameter: what the known call passes, else what all callers pass."""
        if function is frame.function:
            return frame.given.get(name, UNKNOWN_KINDS)
        callers = self.reach.callers.get(function, ())
        if not callers or len(callers) > MAX_CALLERS:
            return UNKNOWN_KINDS
        found: list[ValueKind] = []
        with self.entered() as is_shallow:
            for file, call in callers if is_shallow else ():
                passed = argument_of(call, function, name) if isinstance(call, ast.Call) else None
                if passed is None:
                    return UNKNOWN_KINDS
                outer = Viewpoint(file, call)
                is_default = passed in defaults_of(function)
                found += self.describe(passed, Viewpoint(frame.file, passed) if is_default else outer)
        return kinds(found)

    def _of_global(self, node: ast.Name, frame: Viewpoint) -> tuple[ValueKind, ...]:
        definition = self.tree.resolve(node, frame.file)
        if definition is None:
            return (ValueKind(type="function", values=(frame.file.dotted(node),)),) if frame.file.dotted(node) else \
                UNKNOWN_KINDS
        if isinstance(definition.node, ast.ClassDef):
            bases = [definition.file.dotted(base) for base in definition.node.bases]
            if any(base.startswith("enum.") for base in bases):
                return (ValueKind(type="list", item=(ValueKind(type="enum", varies=True),)),)
        if isinstance(definition.node, (ast.FunctionDef, ast.ClassDef)):
            return (ValueKind(type="function", values=(definition.node.name,)),)
        if isinstance(definition.node, ast.expr):
            return self.describe(definition.node, Viewpoint(definition.file, definition.node))
        return UNKNOWN_KINDS

    def _of_attribute(self, node: ast.Attribute, frame: Viewpoint) -> tuple[ValueKind, ...]:
        return describe_attribute(self, node, frame)

    def _of_subscript(self, node: ast.Subscript, frame: Viewpoint) -> tuple[ValueKind, ...]:
        return describe_item(self, node, frame)

    def _of_call(self, node: ast.Call, frame: Viewpoint) -> tuple[ValueKind, ...]:
        return describe_call(self, node, frame)

    def _of_ifexp(self, node: ast.IfExp, frame: Viewpoint) -> tuple[ValueKind, ...]:
        if not any_varies(self.describe(node.test, frame)):
            return UNKNOWN_KINDS
        return (*self.describe(node.body, frame), *self.describe(node.orelse, frame))

    def _of_binop(self, node: ast.BinOp, frame: Viewpoint) -> tuple[ValueKind, ...]:
        pairs = product(self.describe(node.left, frame), self.describe(node.right, frame))
        return tuple(_arithmetic(left, right, node.op) for left, right in pairs)

    def _of_unaryop(self, node: ast.UnaryOp, frame: Viewpoint) -> tuple[ValueKind, ...]:
        found = self.describe(node.operand, frame)
        if isinstance(node.op, ast.Not):
            return (ValueKind(type="bool", varies=any_varies(found)),)
        return tuple(replace(kind, values=()) for kind in found)

    def _of_compare(self, node: ast.Compare, frame: Viewpoint) -> tuple[ValueKind, ...]:
        found = [kind for part in (node.left, *node.comparators) for kind in self.describe(part, frame)]
        if any(kind.type == "tensor" for kind in found):
            return (TENSOR_KIND,)
        return (ValueKind(type="bool", varies=any_varies(found)),)

    def _of_boolop(self, node: ast.BoolOp, frame: Viewpoint) -> tuple[ValueKind, ...]:
        found = [kind for part in node.values for kind in self.describe(part, frame)]
        return (ValueKind(type="bool", varies=True),) if any_varies(found) else UNKNOWN_KINDS

    def _of_joinedstr(self, node: ast.JoinedStr, frame: Viewpoint) -> tuple[ValueKind, ...]:
        shown = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return (ValueKind(type="str", varies=any(any_varies(self.describe(part, frame)) for part in shown)),)

    def _of_list(self, node: ast.List | ast.Tuple | ast.Set, frame: Viewpoint) -> tuple[ValueKind, ...]:
        if any(isinstance(part, ast.Starred) for part in node.elts):
            found = [kind for part in node.elts for kind in self.describe(getattr(part, "value", part), frame)]
            return (ValueKind(type="list", length_varies=any(kind.length_varies for kind in found)),)
        self._num_lists += 1
        try:
            parts = tuple(
                self.describe(part, frame) if self._num_lists <= MAX_NESTING else UNKNOWN_KINDS for part in node.elts)
        finally:
            self._num_lists -= 1
        inside = merged(kind for part in parts for kind in part)
        varies = any(any_varies(part) for part in parts)
        return (ValueKind(type="list", values=(type(node).__name__,), parts=parts, item=inside, varies=varies),)

    _of_tuple = _of_list
    _of_set = _of_list

    def _of_dict(self, node: ast.Dict, frame: Viewpoint) -> tuple[ValueKind, ...]:
        keys = [kind for key in node.keys if key is not None for kind in self.describe(key, frame)]
        return (ValueKind(type="dict", keys_vary=any_varies(keys)),)

    def _of_listcomp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Viewpoint,
    ) -> tuple[ValueKind, ...]:
        item = self.describe(node.elt, replace(frame, use=node.elt))
        return (ValueKind(type="list", item=item, length_varies=self._has_length(node, frame)),)

    _of_generatorexp = _of_listcomp
    _of_setcomp = _of_listcomp

    def _of_dictcomp(self, node: ast.DictComp, frame: Viewpoint) -> tuple[ValueKind, ...]:
        keys_vary = any_varies(self.describe(node.key, frame))
        return (ValueKind(type="dict", keys_vary=keys_vary, length_varies=self._has_length(node, frame)),)

    def _has_length(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, frame: Viewpoint) -> bool:
        """Whether a comprehension has another number of items in another pass."""
        return any(kind.length_varies for part in node.generators for kind in self.describe(part.iter, frame))

    def _of_lambda(self, node: ast.Lambda, frame: Viewpoint) -> tuple[ValueKind, ...]:
        return (ValueKind(type="function", values=(ast.dump(node),)),)

    def _of_namedexpr(self, node: ast.NamedExpr, frame: Viewpoint) -> tuple[ValueKind, ...]:
        return self.describe(node.value, frame)

    def _of_starred(self, node: ast.Starred, frame: Viewpoint) -> tuple[ValueKind, ...]:
        return self.describe(node.value, frame)


def _part(found: Sequence[ValueKind], position: Sequence[int]) -> tuple[ValueKind, ...]:
    """The part of a value that a target which is unpacked receives."""
    for number in position:
        inner: list[ValueKind] = []
        for kind in found:
            inner += kind.parts[number] if number < len(kind.parts) else kind.item or UNKNOWN_KINDS
        found = inner
    return kinds(found)


def _changed(kind: ValueKind, binding: Binding, added: Sequence[ValueKind]) -> ValueKind:
    """The value after `t *= 0.9`, `items.append(x)` or `table[key] = x`."""
    if kind.type == "list" and binding.kind is not BindingKind.KEYED:
        return replace(kind, length_varies=True, parts=())
    if kind.type == "dict" and binding.kind is not BindingKind.CHANGED:
        return replace(kind, keys_vary=True)
    number = number_type((kind, *added))
    return ValueKind(type=number, varies=True) if number and binding.kind is BindingKind.CHANGED else kind


def _arithmetic(left: ValueKind, right: ValueKind, operator: ast.operator) -> ValueKind:
    both = (left, right)
    tensors = [kind for kind in both if kind.type == "tensor"]
    if tensors:
        is_plain = len(tensors) == 1 or tensors[0] == tensors[1]
        return replace(tensors[0], is_transposed=False) if is_plain and number_type(
            kind for kind in both if kind is not tensors[0]
        ) else replace(TENSOR_KIND, has_grad=_any_grad(tensors))
    number = number_type(both)
    if number:
        kind = "float" if isinstance(operator, ast.Div) else number
        return ValueKind(type=kind, varies=any_varies(both))
    if any(kind.type == "list" for kind in both):
        return ValueKind(type="list", length_varies=any(kind.length_varies or kind.is_grown for kind in both))
    if any(kind.type == "str" for kind in both):
        return ValueKind(type="str", varies=any_varies(both))
    return EARLIER if EARLIER in both else ValueKind(varies=any_varies(both))


def _any_grad(tensors: Sequence[ValueKind]) -> bool | None:
    known = {kind.has_grad for kind in tensors}
    if True in known:
        return True
    return None if None in known else False

