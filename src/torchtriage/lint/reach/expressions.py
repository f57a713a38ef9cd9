"""Evaluates expressions: operators, names, attributes, containers."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from torchtriage.lint.reach.machine import Machine
from torchtriage.lint.reach.objects import held_modules, module_items
from torchtriage.lint.types.torch_calls import STR, attribute_of_name
from torchtriage.lint.types.values import (
    NONE,
    UNKNOWN,
    ClassValue,
    ContainerValue,
    FunctionValue,
    LibraryName,
    LibraryObject,
    NameScope,
    ObjectValue,
    PythonValue,
    TensorValue,
    Value,
    element_of,
    is_none,
    is_too_nested,
    join,
    options,
    tensor_in,
)

MAX_NAMES = 12  # of a loop over names that is evaluated name by name
_COMPILING = ("is_compiling", "is_dynamo_compiling")
_NEVER = frozenset(
    {
        "torch.jit.is_scripting",
        "torch.jit.is_tracing",
        "torch.onnx.is_in_onnx_export",
        "torch.compiler.is_exporting",
        "typing.TYPE_CHECKING",
    }
)


_PLAIN_ATTRIBUTES = frozenset({"shape", "dtype", "device", "layout"})     # of a tensor, never tensors themselves
_PYTHON_TYPES = frozenset({"int", "float", "bool", "str", "complex"})


def python_types(node: ast.expr, scope: NameScope) -> tuple[str, ...]:
    """The names of the types in `isinstance(x, (int, float))` if all of them are of Python; else nothing."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    is_all = len(names) == len(parts) and _PYTHON_TYPES.issuperset(names)
    return names if is_all and all(scope.find(name) is None for name in names) else ()


def known_items(iterated: Value) -> tuple[Value, ...]:
    """What a loop goes over if each item is known: those of a list, or the keys of a dict."""
    if not isinstance(iterated, ContainerValue):
        return ()
    if iterated.kind == "dict":
        return tuple(PythonValue(type(key).__name__, key) for key, _ in iterated.entries or ())
    return iterated.items or ()


def is_named(value: Value) -> bool:
    """Whether a value is a function, a class or a text that the source gives: each of them is another one."""
    is_text = isinstance(value, PythonValue) and isinstance(value.constant, str)
    return is_text or isinstance(value, (FunctionValue, ClassValue))


def _asks_whether_compiling(function: FunctionValue) -> bool:
    """Whether a function of the project returns what torch.compiler.is_compiling() says."""
    returned = [node.value for node in ast.walk(function.node) if isinstance(node, ast.Return)]
    asked = [function.file.dotted(value.func) for value in returned if isinstance(value, ast.Call)]
    return any(name.startswith("torch.") and name.rpartition(".")[2] in _COMPILING for name in asked)


class ExpressionEvaluator(Machine):
    """Each method evaluates one kind of expression."""

    def evaluate(self, node: ast.expr, scope: NameScope) -> Value:
        method: Callable[[ast.expr, NameScope], Value] | None
        method = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        value = UNKNOWN if method is None else method(node, scope)
        if self.current is not None:
            known = self.current.values.get(node)
            self.current.values[node] = value if known is None or known == value else join((known, value))
        return value

    def _all(self, nodes: Sequence[ast.expr], scope: NameScope) -> list[Value]:
        return [self.evaluate(node, scope) for node in nodes]

    def _value_constant(self, node: ast.Constant, scope: NameScope) -> Value:
        if node.value is None:
            return NONE
        return PythonValue(type(node.value).__name__, node.value)

    def _value_name(self, node: ast.Name, scope: NameScope) -> Value:
        found = scope.find(node.id)
        if found is not None:
            return found
        module = self.module_scope(scope.file)
        if node.id in module.names:
            return module.names[node.id]
        if node.id in scope.file.imports:
            return self.imported(scope.file.imports[node.id], scope)
        return LibraryName(f"builtins.{node.id}")

    def imported(self, dotted: str, scope: NameScope) -> Value:
        """The value of an imported name: of a file of the project, or the name of a library."""
        if self.tree.module(dotted, scope.file) is not None and "." not in dotted.rpartition(".")[0]:
            return LibraryName(dotted)
        definition = self.tree.definition(dotted, scope.file)
        if definition is not None:
            name = next((n for n, v in self.tree.definitions(definition.file).items() if v is definition.node), "")
            return self.module_scope(definition.file).names.get(name, UNKNOWN)
        return attribute_of_name(dotted)

    def _value_attribute(self, node: ast.Attribute, scope: NameScope) -> Value:
        return self.attribute(self.evaluate(node.value, scope), node.attr, node, scope)

    def _value_call(self, node: ast.Call, scope: NameScope) -> Value:
        called = self.evaluate(node.func, scope)
        arguments: list[Value] = []
        for argument in node.args:
            value = self.evaluate(argument, scope)
            if isinstance(argument, ast.Starred):
                arguments += value.items if isinstance(value, ContainerValue) and value.items else [element_of(value)]
            else:
                arguments.append(value)
        keywords = {k.arg: self.evaluate(k.value, scope) for k in node.keywords if k.arg}
        for keyword in node.keywords:
            if keyword.arg is None:
                given = self.evaluate(keyword.value, scope)
                known = given.entries if isinstance(given, ContainerValue) else None
                keywords.update({str(k): v for k, v in known} if known else self._written_out(keyword.value, scope))
        return join([self.call(option, arguments, keywords, node, scope) for option in options(called)])

    def _written_out(self, node: ast.expr, scope: NameScope) -> dict[str, Value]:
        """The items of `**OPTIONS` if a dict at the top of a file gives them."""
        definition = self.tree.resolve(node, scope.file)
        written = definition.node if definition is not None else node
        if isinstance(written, ast.Dict):
            pairs = zip(written.keys, written.values, strict=True)
            return {str(k.value): self.evaluate(v, scope) for k, v in pairs if isinstance(k, ast.Constant)}
        if isinstance(written, ast.Call) and isinstance(written.func, ast.Name) and written.func.id == "dict":
            return {k.arg: self.evaluate(k.value, scope) for k in written.keywords if k.arg}
        return {}

    def _value_starred(self, node: ast.Starred, scope: NameScope) -> Value:
        return self.evaluate(node.value, scope)

    def _value_binop(self, node: ast.BinOp, scope: NameScope) -> Value:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        tensors = [t for t in (tensor_in(left), tensor_in(right)) if t is not None]
        if tensors:
            sure = any(t.sure for t in tensors)
            is_mask = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and all(
                t.dtype == "bool" for t in tensors
            )
            dtype = "float" if isinstance(node.op, ast.Div) else ""
            return TensorValue(sure, "bool" if is_mask else dtype)
        if isinstance(left, PythonValue) and isinstance(right, PythonValue):
            kind = "float" if "float" in (left.type, right.type) or isinstance(node.op, ast.Div) else left.type
            return PythonValue(kind, from_tensor=left.from_tensor or right.from_tensor)
        if isinstance(left, ContainerValue) and isinstance(right, ContainerValue):
            return ContainerValue(left.kind, join((element_of(left), element_of(right))))
        return UNKNOWN

    def _value_unaryop(self, node: ast.UnaryOp, scope: NameScope) -> Value:
        value = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return PythonValue("bool", from_tensor=isinstance(value, TensorValue))
        if isinstance(value, PythonValue):
            return PythonValue(value.type, from_tensor=value.from_tensor)
        return value

    def _value_boolop(self, node: ast.BoolOp, scope: NameScope) -> Value:
        values = []
        for part in node.values:
            values.append(self.evaluate(part, scope))
            known = self.truth(part, scope)
            if known is not None and known is isinstance(node.op, ast.Or):
                break  # the rest is not evaluated
        return join(values)

    def _value_compare(self, node: ast.Compare, scope: NameScope) -> Value:
        values = [self.evaluate(node.left, scope), *self._all(node.comparators, scope)]
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return PythonValue("bool")
        is_equality = all(isinstance(op, (ast.Eq, ast.NotEq)) for op in node.ops)
        is_shape = isinstance(node.left, ast.Attribute) and node.left.attr in _PLAIN_ATTRIBUTES
        if is_equality and (is_shape or any(
                isinstance(value, ContainerValue) and value.kind in ("tuple", "list") for value in values[:2])):
            return PythonValue("bool")      # of a shape, whatever the other side is
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            inside = tensor_in(values[-1])
            return PythonValue("bool", from_tensor=inside is not None and inside.sure)
        tensors = [t for t in map(tensor_in, values) if t is not None]
        if tensors:
            return TensorValue(any(t.sure for t in tensors), "bool")
        return PythonValue("bool", from_tensor=any(isinstance(v, PythonValue) and v.from_tensor for v in values))

    def _value_ifexp(self, node: ast.IfExp, scope: NameScope) -> Value:
        self.evaluate(node.test, scope)
        known = self.truth(node.test, scope)
        if known is not None:
            return self.evaluate(node.body if known else node.orelse, scope)
        return join((self.evaluate(node.body, scope), self.evaluate(node.orelse, scope)))

    def _value_namedexpr(self, node: ast.NamedExpr, scope: NameScope) -> Value:
        value = self.evaluate(node.value, scope)
        scope.names[node.target.id] = value
        return value

    def _value_subscript(self, node: ast.Subscript, scope: NameScope) -> Value:
        owner, index = self.evaluate(node.value, scope), self.evaluate(node.slice, scope)
        return join(self._item(option, index, node, scope) for option in options(owner))

    def _item(self, owner: Value, index: Value, node: ast.Subscript, scope: NameScope) -> Value:
        if isinstance(owner, ContainerValue):
            if isinstance(node.slice, ast.Slice):
                return ContainerValue(owner.kind, element_of(owner))
            number = index.constant if isinstance(index, PythonValue) else ...
            if owner.items is not None and isinstance(number, int) and -len(owner.items) <= number < len(owner.items):
                return owner.items[number]
            return owner.at(index)
        if isinstance(owner, TensorValue):
            return owner
        held = held_modules(owner)
        if isinstance(owner, ObjectValue) and held is not None:
            return self._module_item(held, index)
        if isinstance(owner, ObjectValue):
            method = self.attribute(owner, "__getitem__", node, scope)
            return self.call(method, (index,), {}, node, scope)
        if isinstance(owner, LibraryObject):
            if owner.name == "numpy.ndarray":
                return owner
            return self._module_item(owner, index)
        return UNKNOWN

    def _module_item(self, owner: LibraryObject, index: Value) -> Value:
        """An item of nn.Sequential, nn.ModuleList or nn.ModuleDict."""
        items = module_items(owner)
        number = index.constant if isinstance(index, PythonValue) else ...
        if isinstance(number, int) and items and -len(items) <= number < len(items):
            return items[number]
        return join(items)

    def _value_slice(self, node: ast.Slice, scope: NameScope) -> Value:
        self._all([part for part in (node.lower, node.upper, node.step) if part is not None], scope)
        return PythonValue("slice")

    def _value_tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: NameScope) -> Value:
        values = self._all(node.elts, scope)
        kind = type(node).__name__.lower()
        if any(isinstance(part, ast.Starred) for part in node.elts):
            pairs = zip(node.elts, values, strict=True)
            return ContainerValue(kind, join(element_of(v) if isinstance(p, ast.Starred) else v for p, v in pairs))
        if is_too_nested(values):
            return ContainerValue(kind, UNKNOWN)
        return ContainerValue(kind, join(values), tuple(values))

    _value_list = _value_tuple
    _value_set = _value_tuple

    def _value_dict(self, node: ast.Dict, scope: NameScope) -> Value:
        keys = self._all([key for key in node.keys if key is not None], scope)
        values = self._all(node.values, scope)
        if is_too_nested(values):
            return ContainerValue("dict", UNKNOWN, keys=join(keys))
        entries = None
        if None not in node.keys and all(isinstance(k, PythonValue) and k.constant is not ... for k in keys):
            entries = tuple((k.constant, v) for k, v in zip(keys, values, strict=True) if isinstance(k, PythonValue))
        return ContainerValue("dict", join(values), keys=join(keys), entries=entries)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: NameScope
    ) -> NameScope:
        inner = NameScope(scope.file, {}, scope, scope.function)
        for part in node.generators:
            iterated = self.evaluate(part.iter, inner)
            self.assign(part.target, self.items_of(iterated), inner)
            self._all(part.ifs, inner)
        return inner

    def _in_turn(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: NameScope,
    ) -> Iterator[NameScope]:
        """A scope for each function, class or text that a short comprehension goes over."""
        first = node.generators[0]
        items = known_items(self.evaluate(first.iter, scope)) if len(node.generators) == 1 and not first.ifs else ()
        named = [item.items[0] if isinstance(item, ContainerValue) and item.items else item for item in items]
        if len(named) <= MAX_NAMES and all(is_named(item) for item in named):
            for item in items:
                inner = NameScope(scope.file, {}, scope, scope.function)
                self.assign(first.target, item, inner)
                yield inner

    def _value_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: NameScope) -> Value:
        kind = "generator" if isinstance(node, ast.GeneratorExp) else "list"
        items = tuple(self.evaluate(node.elt, inner) for inner in self._in_turn(node, scope))
        if items:
            return ContainerValue(kind, join(items), items)
        inner = self._comprehension(node, scope)
        return ContainerValue(kind, self.evaluate(node.elt, inner))

    _value_setcomp = _value_listcomp
    _value_generatorexp = _value_listcomp

    def _value_dictcomp(self, node: ast.DictComp, scope: NameScope) -> Value:
        scopes = self._in_turn(node, scope)
        pairs = [(self.evaluate(node.key, inner), self.evaluate(node.value, inner)) for inner in scopes]
        if pairs and all(isinstance(key, PythonValue) and key.constant is not ... for key, _ in pairs):
            entries = tuple((key.constant, value) for key, value in pairs if isinstance(key, PythonValue))
            return ContainerValue("dict", join(v for _, v in pairs), keys=join(k for k, _ in pairs), entries=entries)
        inner = self._comprehension(node, scope)
        key = self.evaluate(node.key, inner)
        return ContainerValue("dict", self.evaluate(node.value, inner), keys=key)

    def _value_joinedstr(self, node: ast.JoinedStr, scope: NameScope) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.evaluate(part.value, scope)
        return STR

    def _value_lambda(self, node: ast.Lambda, scope: NameScope) -> Value:
        return FunctionValue(scope.file, node, scope)

    def _value_await(self, node: ast.Await, scope: NameScope) -> Value:
        return self.evaluate(node.value, scope)

    def _value_yield(self, node: ast.Yield, scope: NameScope) -> Value:
        self.yields[-1].append(self.evaluate(node.value, scope) if node.value else NONE)
        return UNKNOWN

    def _value_yieldfrom(self, node: ast.YieldFrom, scope: NameScope) -> Value:
        self.yields[-1].append(element_of(self.evaluate(node.value, scope)))
        return UNKNOWN

    def truth(self, node: ast.expr, scope: NameScope) -> bool | None:
        """Whether a condition holds, if the source decides it: a guard for compiled code, a constant flag."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, scope)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            return self._truth_of_parts(node, scope)
        if isinstance(node, ast.Call):
            return self._truth_of_call(node, scope)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            both = [self._quiet(node.left, scope), self._quiet(node.comparators[0], scope)]
            return isinstance(node.ops[0], ast.Is) if all(map(is_none, both)) else None
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._truth_of_names(node, scope)
        if isinstance(node, ast.Subscript):
            return self._truth_of_setting(node, scope)
        value = self._quiet(node, scope)
        if isinstance(value, LibraryName):
            return False if value.name in _NEVER else None
        if isinstance(value, PythonValue) and isinstance(value.constant, bool):
            return value.constant
        return False if is_none(value) and isinstance(node, (ast.Name, ast.Attribute)) else None

    def _truth_of_setting(self, node: ast.Subscript, scope: NameScope) -> bool | None:
        """`CONFIG["debug"]`, where a dict at the top of a file says it and no line of the project writes to it."""
        definition = self.tree.resolve(node.value, scope.file) if isinstance(node.value, ast.Name) else None
        flag = getattr(self.evaluate(node, scope), "constant", None)
        if definition is None or not isinstance(definition.node, ast.Dict) or not isinstance(flag, bool):
            return None
        name = re.escape(ast.unparse(node.value))
        writes = re.compile(rf"\b{name}\b(\[[^\]\n]*\])+ *=[^=]|\b{name}\.(update|setdefault|pop)\b|\|= *{name}")
        return None if any(writes.search(file.text) for file in self.tree.files) else flag

    def _truth_of_names(self, node: ast.Compare, scope: NameScope) -> bool | None:
        """`kind == "mlp"` and `kind in ("mlp", "cnn")` where the caller gives the text."""
        left, other = self._quiet(node.left, scope), node.comparators[0]
        if not isinstance(left, PythonValue) or not isinstance(left.constant, str):
            return None
        choices = other.elts if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else [other]
        known = [getattr(self._quiet(choice, scope), "constant", None) for choice in choices]
        texts = [constant for constant in known if isinstance(constant, str)]
        if len(texts) < len(choices) or isinstance(node.ops[0], (ast.Eq, ast.NotEq)) is not (choices == [other]):
            return None
        if isinstance(node.ops[0], (ast.Eq, ast.In)):
            return left.constant in texts
        return left.constant not in texts if isinstance(node.ops[0], (ast.NotEq, ast.NotIn)) else None

    def _quiet(self, node: ast.expr, scope: NameScope) -> Value:
        """The value of a name, attribute or constant, which has been evaluated already."""
        if isinstance(node, (ast.Name, ast.Constant, ast.Attribute)):
            return self.evaluate(node, scope)
        return UNKNOWN

    def _truth_of_parts(self, node: ast.BoolOp, scope: NameScope) -> bool | None:
        parts = [self.truth(part, scope) for part in node.values]
        decides = isinstance(node.op, ast.Or)
        if decides in parts:
            return decides
        return None if None in parts else not decides

    def _truth_of_call(self, node: ast.Call, scope: NameScope) -> bool | None:
        called = self._quiet(node.func, scope)
        name = called.name if isinstance(called, LibraryName) else ""
        if isinstance(called, FunctionValue) and _asks_whether_compiling(called):
            return self.site is not None
        if name.rpartition(".")[2] in _COMPILING and name.startswith("torch."):
            return self.site is not None
        if name in _NEVER:
            return False
        if name == "builtins.isinstance" and len(node.args) == 2:
            value, class_ = self._quiet(node.args[0], scope), self._quiet(node.args[1], scope)
            if class_ == LibraryName("torch.Tensor"):
                if isinstance(value, TensorValue) and value.sure:
                    return True
                return False if isinstance(value, PythonValue) else None
            if isinstance(value, TensorValue) and value.sure and python_types(node.args[1], scope):
                return False
        return None

