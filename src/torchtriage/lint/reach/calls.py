"""Evaluates calls: functions of the project are entered, those of libraries have known results."""

import ast
from collections.abc import Mapping, Sequence

from torchtriage.lint.reach.hooks import REGISTERS, HookEvaluator, one_of_modules
from torchtriage.lint.reach.machine import (
    MAX_CONTEXTS,
    MAX_DEPTH,
    MAX_EAGER_CONTEXTS,
    MAX_EAGER_DEPTH,
    MAX_TOLD_CONTEXTS,
)
from torchtriage.lint.reach.model import Hop, Reached, SiteCall, TargetSite
from torchtriage.lint.reach.objects import (
    ObjectEvaluator,
    find_member,
    held_modules,
    hold_modules,
    is_module,
    module_items,
)
from torchtriage.lint.types.torch_calls import (
    BOOL,
    FLOAT,
    INT,
    STR,
    annotated,
    library_call,
    module_result,
    object_method,
    tensor_method,
)
from torchtriage.lint.types.values import (
    NONE,
    TENSOR,
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
    PythonValue,
    TensorValue,
    Value,
    element_of,
    join,
    options,
    tensor_in,
)

COMPILE = frozenset({"torch.compile", "torch._dynamo.optimize"})
_DISABLE = frozenset({"torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo"})
_OPAQUE = (
    "torch.compiler.allow_in_graph",
    "torch._dynamo.allow_in_graph",
    "torch.compiler.assume_constant_result",
    "torch._dynamo.assume_constant_result",
    "torch._dynamo.nonstrict_trace",
    "torch.compiler.nonstrict_trace",
    "torch.library.custom_op",
    "torch.compiler.substitute_in_graph",
    "torch.library.register_fake",
)
_CALLS_ITS_FIRST = frozenset(
    {
        "torch.utils.checkpoint.checkpoint",
        "torch.func.vmap",
        "torch.vmap",
        "torch.func.grad",
        "torch.func.jvp",
        "torch.utils._pytree.tree_map",
        "torch.func.functional_call",
        "torch.nn.utils.stateless.functional_call",
    }
)
_SAME_ITEMS = frozenset(
    {
        "list",
        "tuple",
        "set",
        "frozenset",
        "sorted",
        "reversed",
        "iter",
        "deque",
    }
)
# The compiler draws these numbers inside the graph, so their values are not known while it is made.
_DRAWN_IN_GRAPH = {"random.uniform": "float", "random.randint": "int", "random.randrange": "int"}
_ADDS = frozenset({"append", "extend", "insert", "add_module", "register_module", "update"})
MADE_NAMES = "+"        # the attribute that holds what is set under names that a loop makes
MAX_ADDED = 12          # modules that are added to one container one by one
MAX_CLOSURES = 3        # of one compiled function that are followed
_CHAINED = frozenset(
    {
        "to",
        "cuda",
        "cpu",
        "eval",
        "train",
        "half",
        "float",
        "double",
        "bfloat16",
        "requires_grad_",
        "share_memory",
        "apply",
        "to_empty",
    }
)


class CallEvaluator(ObjectEvaluator, HookEvaluator):
    """Calls of every kind of value."""

    def call(
        self,
        called: Value,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        if isinstance(called, FunctionValue):
            return self.run_function(called, arguments, keywords, node, scope)
        if isinstance(called, LibraryName):
            return self._call_library(called.name, arguments, keywords, node, scope)
        if isinstance(called, MethodValue):
            return self._call_method(called, arguments, keywords, node, scope)
        if isinstance(called, ClassValue):
            return self._instantiate(called, arguments, keywords, node, scope)
        if isinstance(called, ObjectValue):
            return self._call_object(called, arguments, keywords, node, scope)
        if isinstance(called, LibraryObject):
            return self._call_library_object(called, arguments, keywords, node, scope)
        if isinstance(called, CompiledValue):
            return self._call_compiled(called, arguments, keywords, node, scope)
        if isinstance(called, DisabledValue):
            return UNKNOWN if self.site is not None else self.call(called.target, arguments, keywords, node, scope)
        return UNKNOWN

    def _call_compiled(
        self,
        called: CompiledValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        site = self.reach.sites[called.site]
        site.is_used = True
        if isinstance(called.target, FunctionValue) and called.target.bound is not None:  # noqa: SIM102 - two questions
            if all(known.bound != called.target.bound for known in site.bound):
                site.bound.append(called.target)
        at, caller = self._behind_wrappers(node, scope)
        if isinstance(at, ast.Call) and self.site is None and not any(c.node is at for c in site.calls):
            site.calls.append(SiteCall(caller.file, at, tuple(arguments), dict(keywords)))
        return join([self.call(t, arguments, keywords, node, scope) for t in options(called.target)])

    def _behind_wrappers(self, node: ast.AST, scope: NameScope) -> tuple[ast.AST, NameScope]:
        """The call from outside of a wrapper that passes on all that it is given: `compiled(*args, **kwargs)`."""
        for call, caller in reversed(self.eager_path):
            wrapper = None if scope.function is None else scope.function.node.args
            if wrapper is None or wrapper.vararg is None or wrapper.args or not isinstance(node, ast.Call):
                break
            if [ast.unparse(part) for part in node.args] != [f"*{wrapper.vararg.arg}"]:
                break
            node, scope = call, caller
        return node, scope

    def _call_object(
        self,
        called: ObjectValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        instance = called.instance
        name = "__call__"
        if find_member(instance.of, name) is None and is_module(instance.of):
            name = "forward"
            held = held_modules(called)
            if held is not None and find_member(instance.of, name) is None:
                result = self._call_library_object(held, arguments, keywords, node, scope)
                self.run_hooks(called, arguments, result, node, scope)
                return result
        method = self.attribute(called, name, node, scope)
        result = join([self.call(m, arguments, keywords, node, scope) for m in options(method)])
        self.run_hooks(called, arguments, result, node, scope)
        return result

    def _call_library_object(
        self,
        called: LibraryObject,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        if called.name == "torch.nn.Sequential":
            value: Value = arguments[0] if arguments else UNKNOWN
            for item in module_items(called):
                value = join([self.call(option, (value,), {}, node, scope) for option in options(item)])
            self.run_hooks(called, arguments, TENSOR if value == UNKNOWN else value, node, scope)
            return TENSOR if value == UNKNOWN else value
        if called.name.startswith("torch.nn."):
            self.run_hooks(called, arguments, module_result(called.name), node, scope)
            return module_result(called.name)
        if called.name == "functools.partial" and called.items:
            return self.call(called.items[0], (*called.items[1:], *arguments), keywords, node, scope)
        if called.name.startswith(("torch.compile", "torch._dynamo.optimize")) and arguments:
            return self._compile(arguments[0], _kept_options(called), node, scope)
        if called.name.startswith("disabled"):
            return DisabledValue(arguments[0]) if arguments else UNKNOWN
        if called.name.startswith(_OPAQUE):
            return LibraryName("torch.opaque")
        return UNKNOWN

    def _call_method(
        self,
        called: MethodValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        owner, name = called.owner, called.name
        if name == "static":
            return self.call(owner, arguments, keywords, node, scope)
        if isinstance(owner, ClassValue):
            return self._apply_function(owner, arguments, node, scope)
        if isinstance(owner, TensorValue):
            return tensor_method(owner, name, arguments, "dim" in keywords)
        if isinstance(owner, ContainerValue):
            return self._container_method(owner, name, arguments, node, scope)
        if isinstance(owner, ObjectValue):
            return self._module_method(owner, name, arguments, keywords, node, scope)
        if isinstance(owner, LibraryObject):
            if owner.name.startswith("torch.nn."):
                return self._module_method(owner, name, arguments, keywords, node, scope)
            return object_method(owner, name)
        return UNKNOWN

    def _apply_function(
        self, class_: ClassValue, arguments: Sequence[Value], node: ast.AST, scope: NameScope
    ) -> Value:
        """`apply` of a torch.autograd.Function: its forward is compiled too."""
        forward = find_member(class_, "forward")
        context = () if find_member(class_, "setup_context") is not None else (LibraryObject("torch.autograd.ctx"),)
        result = UNKNOWN if forward is None else self.call(forward, (*context, *arguments), {}, node, scope)
        return TENSOR if result == UNKNOWN else result

    def _module_method(
        self,
        owner: ObjectValue | LibraryObject,
        name: str,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        """A method that nn.Module defines."""
        if name in _CHAINED:
            return owner
        if name == "__init__" and isinstance(owner, ObjectValue):
            hold_modules(owner.instance, arguments, node)
            return NONE
        if name == "compile":
            site = self._compile(owner, keywords, node, scope)
            if isinstance(site, CompiledValue):
                self.reach.sites[site.site].is_used = True
                if isinstance(owner, ObjectValue):
                    owner.instance.attributes["__call__"] = site
                return NONE
        if name in REGISTERS:
            return self.register_hook(owner, name, arguments, keywords, node, scope)
        if name in ("parameters", "buffers"):
            return ContainerValue("iterator", TENSOR)
        if name in ("named_parameters", "named_buffers"):
            return ContainerValue("iterator", ContainerValue("tuple", UNKNOWN, (STR, TENSOR)))
        if name == "register_buffer" and len(arguments) > 1 and isinstance(owner, ObjectValue):
            label = arguments[0].constant if isinstance(arguments[0], PythonValue) else None
            if isinstance(label, str):
                owner.instance.attributes[label] = arguments[1]
            return NONE
        if name in ("children", "modules"):
            return ContainerValue("iterator", one_of_modules(owner, node, with_itself=name == "modules"))
        if name in ("named_children", "named_modules"):
            part = one_of_modules(owner, node, with_itself=name == "named_modules")
            return ContainerValue("iterator", ContainerValue("tuple", UNKNOWN, (STR, part)))
        if name in _ADDS and arguments:
            self._add_modules(owner, name, arguments, node, scope)
            return owner
        if name in ("items", "values", "keys", "__getitem__"):
            return self._module_items(owner, name)
        held = held_modules(owner)
        if name == "forward" and held is not None:
            return self._call_library_object(held, arguments, keywords, node, scope)
        if name == "__call__":
            return self.call(owner, arguments, keywords, node, scope)
        return UNKNOWN

    def _module_items(self, owner: ObjectValue | LibraryObject, name: str) -> Value:
        held = held_modules(owner)
        items = module_items(held) if held is not None else []
        if name == "items":
            return ContainerValue("iterator", ContainerValue("tuple", UNKNOWN, (STR, join(items))))
        return ContainerValue("iterator", STR) if name == "keys" else ContainerValue("iterator", join(items))

    def _add_modules(
        self,
        owner: ObjectValue | LibraryObject,
        name: str,
        arguments: Sequence[Value],
        node: ast.AST,
        scope: NameScope,
    ) -> None:
        """`layers.append(block)` and `self.add_module("head", block)`."""
        held = held_modules(owner)
        if held is None and isinstance(owner, ObjectValue):
            self.set_attribute(owner.instance, arguments[0], arguments[-1])
        elif held is not None:
            added = [self.items_of(arguments[0])] if name in ("extend", "update") else [arguments[-1]]
            receiver = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            self.grow(owner, held, added, receiver, scope)

    def grow(
        self, owner: Value, held: LibraryObject, added: Sequence[Value], receiver: ast.expr | None, scope: NameScope,
    ) -> None:
        """Give a container of modules more of them, wherever it is kept."""
        new = tuple(value for value in added if value not in held.items)
        grown = LibraryObject(held.name, held.node, (*held.items, *new))
        if not new or len(grown.items) > MAX_ADDED:
            return
        if isinstance(owner, ObjectValue):
            hold_modules(owner.instance, grown.items, held.node or owner.instance.of.node)
            return
        if isinstance(receiver, ast.Attribute):
            for holder in options(self.evaluate(receiver.value, scope)):
                if isinstance(holder, ObjectValue):
                    holder.instance.attributes[receiver.attr] = grown
        elif isinstance(receiver, ast.Name):
            self.rebind(receiver, grown, scope)

    def set_attribute(self, instance: InstanceValue, label: Value, value: Value) -> None:
        """`setattr(self, name, value)`; a name that is made in a loop stands for each of its values."""
        constant = label.constant if isinstance(label, PythonValue) else None
        name = constant if isinstance(constant, str) else MADE_NAMES
        known = instance.attributes.get(name)
        instance.attributes[name] = value if known is None else join((known, value))

    def _container_method(
        self,
        owner: ContainerValue,
        name: str,
        arguments: Sequence[Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        if name == "items":
            pair = ContainerValue("tuple", UNKNOWN, (owner.keys, element_of(owner)))
            known = tuple(
                ContainerValue("tuple", UNKNOWN, (PythonValue(type(key).__name__, key), value))
                for key, value in owner.entries or ()
            )
            return ContainerValue("iterator", pair, known or None)
        if name == "keys":
            return ContainerValue("iterator", owner.keys)
        if name in ("values", "copy"):
            kind, entries = ("iterator", None) if name == "values" else (owner.kind, owner.entries)
            return ContainerValue(kind, element_of(owner), keys=owner.keys, entries=entries)
        if name in ("pop", "popleft", "get", "setdefault", "__getitem__"):
            return owner.at(arguments[0]) if arguments else element_of(owner)
        if name in ("append", "add", "appendleft") and arguments and isinstance(node, ast.Call):
            added = ContainerValue(owner.kind, join((*_known(element_of(owner)), arguments[0])))
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
            if isinstance(receiver, (ast.Name, ast.Attribute)):
                self.rebind(receiver, added, scope)
            return NONE
        return UNKNOWN

    def _instantiate(
        self,
        class_: ClassValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        key = ("new", class_, node, tuple(arguments), tuple(sorted(keywords.items(), key=lambda item: item[0])))
        try:
            known = self.memo.get(key)
        except TypeError:  # a value that cannot be hashed
            return UNKNOWN
        if known is not None:
            return known
        made = ObjectValue(InstanceValue(class_))
        self.memo[key] = made
        for name in ("__init__", "setup", "__post_init__"):
            method = find_member(class_, name)
            if method is not None:
                bound = self.attribute(made, name, node, scope)
                given = (arguments, keywords) if name == "__init__" else ((), {})
                with self.elsewhere():
                    self.call(bound, *given, node, scope)
        if find_member(class_, "__init__") is None:
            hold_modules(made.instance, arguments, node)
            self._fill_fields(made, class_, arguments, keywords)
        return made

    def _fill_fields(
        self,
        made: ObjectValue,
        class_: ClassValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> None:
        """The fields of a dataclass."""
        fields = [
            s.target.id for s in class_.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        ]
        made.instance.attributes.update(zip(fields, arguments, strict=False))
        made.instance.attributes.update({name: value for name, value in keywords.items() if name in fields})

    def _call_library(
        self,
        name: str,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        if name in COMPILE:
            if arguments or "model" in keywords:
                target = arguments[0] if arguments else keywords["model"]
                if target != NONE:
                    return self._compile(target, keywords, node, scope)
            return LibraryObject(name, node, (_options_value(keywords),))
        if name in _DISABLE:
            return DisabledValue(arguments[0]) if arguments else LibraryObject("disabled", node)
        if name.startswith(_OPAQUE):
            return (
                LibraryName("torch.opaque")
                if arguments and isinstance(arguments[0], FunctionValue)
                else (LibraryObject(name, node))
            )
        if name == "torch.opaque":
            return TensorValue(sure=False)
        if name == "collections.OrderedDict":
            given = options(element_of(arguments[0])) if arguments else ()
            pairs = [option.items for option in given if isinstance(option, ContainerValue)]
            return ContainerValue("dict", join(pair[1] for pair in pairs if pair is not None and len(pair) == 2))
        if name == "builtins.dict" and not arguments:
            return ContainerValue("dict", join(keywords.values()), keys=STR, entries=tuple(keywords.items()))
        if name == "functools.partial" and arguments:
            return self._partial(arguments, keywords, node)
        if name == "functools.wraps":
            return LibraryName("functools.wraps.identity")
        if name in ("functools.wraps.identity", "functools.lru_cache", "functools.cache", "contextlib.contextmanager"):
            return arguments[0] if arguments else LibraryName("functools.wraps.identity")
        if name in _CALLS_ITS_FIRST and arguments:
            return join([self.call(a, arguments[1:], {}, node, scope) for a in options(arguments[0])])
        if name in _DRAWN_IN_GRAPH and self.site is not None:
            return TensorValue(True, _DRAWN_IN_GRAPH[name])
        if name.startswith("builtins."):
            return self._builtin(name.partition(".")[2], arguments, node, scope)
        return library_call(name, arguments, tuple(keywords), node)

    def _partial(self, arguments: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST) -> Value:
        first = arguments[0]
        if first == LibraryName("torch.compile"):
            return LibraryObject("torch.compile", node, (_options_value(keywords),))
        if isinstance(first, FunctionValue):
            preset = (*first.preset, *arguments[1:])
            named = tuple({**dict(first.named), **keywords}.items())
            return FunctionValue(first.file, first.node, first.outer, first.bound, first.owner, preset, named)
        return LibraryObject("functools.partial", node, tuple(arguments))

    def _builtin(self, name: str, arguments: Sequence[Value], node: ast.AST, scope: NameScope) -> Value:
        first = arguments[0] if arguments else UNKNOWN
        if name == "open":
            return LibraryObject("builtins.open", node)
        tensor = next((t for t in map(tensor_in, arguments) if t is not None), None)
        if name in ("len", "hash", "id", "ord"):
            return INT
        if name in ("int", "float", "bool"):
            read = tensor is not None or (isinstance(first, PythonValue) and first.from_tensor)
            return PythonValue(name, from_tensor=read)
        if name in ("str", "repr", "format", "chr", "ascii"):
            return STR
        if name in ("isinstance", "issubclass", "hasattr", "callable"):
            return BOOL
        if name in ("print", "setattr", "delattr"):
            if name == "setattr" and len(arguments) == 3 and isinstance(first, ObjectValue):
                self.set_attribute(first.instance, arguments[1], arguments[2])
            return NONE
        if name == "range":
            return ContainerValue("range", INT)
        if name == "enumerate":
            return ContainerValue("iterator", ContainerValue("tuple", UNKNOWN, (INT, self.items_of(first))))
        if name == "zip":
            return ContainerValue("iterator", ContainerValue("tuple", UNKNOWN, tuple(map(self.items_of, arguments))))
        if name in _SAME_ITEMS:
            if name in ("list", "tuple", "sorted") and isinstance(first, ContainerValue) and first.items:
                return ContainerValue(name if name != "sorted" else "list", first.element, first.items)
            return ContainerValue(name, self.items_of(first))
        if name in ("map", "filter") and len(arguments) > 1:
            items = [self.items_of(argument) for argument in arguments[1:]]
            result = self.call(first, items, {}, node, scope)
            return ContainerValue("iterator", result if name == "map" else items[0])
        if name in ("sum", "max", "min", "next", "abs", "round", "pow"):
            return self._reduced(name, first, arguments, tensor)
        if name in ("any", "all"):
            inside = tensor_in(element_of(first))
            return PythonValue("bool", from_tensor=inside is not None and isinstance(first, ContainerValue))
        if name == "super":
            return self._super(scope)
        if name == "getattr" and len(arguments) > 1 and isinstance(arguments[1], PythonValue):
            label = arguments[1].constant
            if isinstance(label, str):
                return self.attribute(first, label, node, scope)
            return first.instance.attributes.get(MADE_NAMES, UNKNOWN) if isinstance(first, ObjectValue) else UNKNOWN
        if name == "dict":
            return first if isinstance(first, ContainerValue) else ContainerValue("dict")
        return UNKNOWN

    def items_of(self, value: Value) -> Value:
        parts = []
        for option in options(value):
            option = held_modules(option) or option
            if isinstance(option, LibraryObject) and option.name.startswith("torch.nn."):
                parts.append(join(module_items(option)))
            elif isinstance(option, ContainerValue) and option.kind == "dict":
                parts.append(option.keys)
            else:
                parts.append(element_of(option))
        return join(parts)

    def _reduced(self, name: str, first: Value, arguments: Sequence[Value], tensor: TensorValue | None) -> Value:
        if len(arguments) == 1 and isinstance(first, ContainerValue):
            inside = element_of(first)
            if tensor_in(inside) is not None or name == "next":
                return inside
            return inside if isinstance(inside, PythonValue) else UNKNOWN
        if tensor is not None:
            return tensor
        return join(arguments) if all(isinstance(a, PythonValue) for a in arguments) else FLOAT

    def _super(self, scope: NameScope) -> Value:
        inner: NameScope | None = scope
        while inner is not None and (inner.function is None or inner.function.bound is None):
            inner = inner.outer
        if inner is None or inner.function is None or inner.function.owner is None:
            return UNKNOWN
        bound = inner.function.bound
        return ObjectValue(bound.instance, inner.function.owner) if isinstance(bound, ObjectValue) else UNKNOWN

    def _compile(self, target: Value, keywords: Mapping[str, Value], node: ast.AST, scope: NameScope) -> Value:
        """A call of torch.compile: remembered as a site, with all that it may compile."""
        if isinstance(keywords.get("disable"), PythonValue) and keywords["disable"].constant is True:  # type: ignore[attr-defined]  # just tested
            return target
        key = (node, hash(target) if not isinstance(target, FunctionValue) else hash((target.node, target.bound)))
        if key not in self.sites_by_node:
            self.sites_by_node[key] = len(self.reach.sites)
            self.reach.sites.append(TargetSite(scope.file, node, dict(keywords), target, scope.function))
        site = self.sites_by_node[key]
        self._keep_closure(self.reach.sites[site], target)
        if self.site is not None:
            self.reach.sites[site].num_made += 1
        return CompiledValue(target, site)

    def _keep_closure(self, site: TargetSite, target: Value) -> None:
        """The same function made again, with other names around it, is compiled with those too."""
        first, known = site.target, [closure.outer for closure in site.closures]
        if not isinstance(first, FunctionValue) or not isinstance(target, FunctionValue):
            return
        if target.outer not in (first.outer, *known) and len(known) < MAX_CLOSURES:
            site.closures.append(target)

    def run_function(
        self,
        function: FunctionValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        if self.site is None and isinstance(node, ast.Call):
            callers = self.reach.callers.setdefault(function.node, [])
            if all(known is not node for _, known in callers):
                callers.append((scope.file, node))
        limit = MAX_DEPTH if self.site is not None else MAX_EAGER_DEPTH
        given = (*function.preset, *arguments)
        keywords = {**dict(function.named), **keywords}
        if function.bound is not None:
            given = (function.bound, *given)
        try:
            # Each call of a wrapper is one of what it wraps.
            by_call = node if self.site is None and function.node.args.vararg is not None else None
            around = _closure_key(function)
            key = (function.node, function.bound, given, tuple(keywords.items()), self.site, around, by_call)
            known = self.memo.get(key)
        except TypeError:
            return UNKNOWN
        if known is not None or self.depth >= limit:
            return UNKNOWN if known is None else known
        self.memo[key] = UNKNOWN  # a recursive call
        if not self._has_contexts_left(function, given):
            return UNKNOWN
        inner = NameScope(function.file, {}, function.outer, function)
        self._bind(function, given, keywords, inner)
        self.depth += 1
        try:
            result = self._body(function, inner, node, scope)
        finally:
            self.depth -= 1
        self.memo[key] = result
        return result

    def _has_contexts_left(self, function: FunctionValue, given: Sequence[Value]) -> bool:
        if self.site is None:
            # A factory with an argument for what to make, or a decorator, has a context for each name and function.
            is_told = any(isinstance(v, (FunctionValue, ClassValue)) or _is_text(v) for v in given)
            is_told = is_told or _closure_key(function) is not None
            return self._count(function.node) <= (MAX_TOLD_CONTEXTS if is_told else MAX_EAGER_CONTEXTS)
        bound = function.bound.instance if isinstance(function.bound, ObjectValue) else None
        return self._count((function.node, self.site, bound)) <= MAX_CONTEXTS

    def _count(self, key: object) -> int:
        self.num_contexts[key] = self.num_contexts.get(key, 0) + 1
        return self.num_contexts[key]

    def _body(self, function: FunctionValue, inner: NameScope, node: ast.AST, scope: NameScope) -> Value:
        saved = self.current
        self.returns.append([])
        self.yields.append([])
        if self.site is not None:
            self.path.append(Hop(function, scope.file, node))
            self.current = Reached(function, self.site, tuple(self.path), inner)
            self.reach.reached.append(self.current)
        else:
            self.entered.add(function.node)
            self.eager_path.append((node, scope))
        try:
            if isinstance(function.node, ast.Lambda):
                return self.evaluate(function.node.body, inner)
            ends = self.run(function.node.body, inner)
        finally:
            returned, yielded = self.returns.pop(), self.yields.pop()
            (self.path if self.site is not None else self.eager_path).pop()
            self.current = saved
        if yielded:
            return ContainerValue("generator", join(yielded))
        return join([*returned, NONE] if ends else returned) if returned else NONE

    def _bind(
        self,
        function: FunctionValue,
        given: Sequence[Value],
        keywords: Mapping[str, Value],
        inner: NameScope,
    ) -> None:
        """Give the parameters their values: arguments, else defaults, refined by annotations."""
        spec = function.node.args
        names = [*spec.posonlyargs, *spec.args]
        defaults: dict[str, ast.expr] = {}
        for parameter, default in zip(reversed(names), reversed(spec.defaults), strict=False):
            defaults[parameter.arg] = default
        for parameter, maybe in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if maybe is not None:
                defaults[parameter.arg] = maybe
        for number, parameter in enumerate([*names, *spec.kwonlyargs]):
            value = given[number] if number < min(len(given), len(names)) else keywords.get(parameter.arg)
            if value is None and parameter.arg in defaults:
                value = self.evaluate(defaults[parameter.arg], function.outer)
            if value is None or value == UNKNOWN:
                value = self.annotation(parameter.annotation, function.outer) or UNKNOWN
            inner.names[parameter.arg] = value
        if spec.vararg is not None:
            rest = tuple(given[len(names) :])
            inner.names[spec.vararg.arg] = ContainerValue("tuple", join(rest), rest or None)
        if spec.kwarg is not None:
            known = {p.arg for p in (*names, *spec.kwonlyargs)}
            others = [value for name, value in keywords.items() if name not in known]
            inner.names[spec.kwarg.arg] = ContainerValue("dict", join(others), keys=STR)

    def annotation(self, node: ast.expr | None, scope: NameScope) -> Value | None:
        if node is None:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(node, ast.Subscript):
            return self._generic(node, scope)
        if isinstance(node, ast.BinOp):
            found = [self.annotation(side, scope) for side in (node.left, node.right)]
            return next((value for value in found if value is not None and value != PythonValue("None")), None)
        dotted = scope.file.dotted(node) or (node.id if isinstance(node, ast.Name) else "")
        return annotated(dotted)

    def _generic(self, node: ast.Subscript, scope: NameScope) -> Value | None:
        name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Optional":
            return self.annotation(inner[0], scope)
        if name in ("List", "list", "Sequence", "Iterable", "Tuple", "tuple", "Set", "set"):
            return ContainerValue(name.lower(), self.annotation(inner[0], scope) or UNKNOWN)
        if name in ("Dict", "dict", "Mapping") and len(inner) == 2:
            keys = self.annotation(inner[0], scope) or UNKNOWN
            return ContainerValue("dict", self.annotation(inner[1], scope) or UNKNOWN, keys=keys)
        return None


def _known(value: Value) -> tuple[Value, ...]:
    return () if value == UNKNOWN else (value,)


def _options_value(keywords: Mapping[str, Value]) -> ContainerValue:
    """The keyword arguments of `torch.compile(...)` that is used as a decorator."""
    names = ContainerValue("tuple", STR, tuple(PythonValue("str", name) for name in keywords))
    return ContainerValue("options", UNKNOWN, tuple(keywords.values()), names)


def _kept_options(called: LibraryObject) -> Mapping[str, Value]:
    held = called.items[0] if called.items else UNKNOWN
    names = held.keys.items if isinstance(held, ContainerValue) and isinstance(held.keys, ContainerValue) else None
    if not isinstance(held, ContainerValue) or names is None:
        return {}
    return {str(n.constant): v for n, v in zip(names, held.items or (), strict=True) if isinstance(n, PythonValue)}


def _is_text(value: Value) -> bool:
    return isinstance(value, PythonValue) and isinstance(value.constant, str)


def _closure_key(function: FunctionValue) -> object:
    """Functions made by the same `def` with other names around them are different functions."""
    return function.outer if function.outer.function is not None else None
