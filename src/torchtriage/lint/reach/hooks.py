"""Hooks of modules: remembered where eager code registers them, evaluated where compiled code calls the module."""

import ast
from collections.abc import Mapping, Sequence

from torchtriage.lint.reach.machine import Machine
from torchtriage.lint.reach.model import ModuleHook
from torchtriage.lint.reach.objects import is_module, module_items
from torchtriage.lint.types.values import (
    NONE,
    UNKNOWN,
    ContainerValue,
    LibraryObject,
    NameScope,
    ObjectValue,
    PythonValue,
    UnionValue,
    Value,
    join,
    options,
)

REGISTERS = frozenset({
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_backward_hook",
})
_MAX_DEPTH = 6  # of modules in modules
_ANY_INSIDE = "torch.nn.Module"


def hook_key(module: Value) -> object:
    """What stands for a module in the table of hooks; None for another value."""
    if isinstance(module, ObjectValue):
        return module.instance
    if isinstance(module, LibraryObject) and module.name.startswith("torch.nn."):
        return module.name, module.node
    return None


def submodules(owner: Value, depth: int = 0) -> list[Value]:
    """The modules in a module, without itself."""
    inside: list[Value] = []
    if isinstance(owner, LibraryObject):
        inside = [option for item in module_items(owner) for option in options(item)]
    elif isinstance(owner, ObjectValue):
        inside = [option for value in owner.instance.attributes.values() for option in options(value)]
    found: list[Value] = []
    for value in inside:
        is_own = isinstance(value, ObjectValue) and is_module(value.instance.of)
        if (is_own or (isinstance(value, LibraryObject) and hook_key(value) is not None)) and depth < _MAX_DEPTH:
            found += [value, *submodules(value, depth + 1)]
    return found


def one_of_modules(owner: Value, node: ast.AST, *, with_itself: bool) -> Value:
    """What a loop over `modules()` or `children()` yields: one of those inside, or a name for all of them."""
    inside = [*([owner] if with_itself else []), *submodules(owner)]
    found = join(inside) if inside else UNKNOWN
    return found if isinstance(found, (UnionValue, ObjectValue, LibraryObject)) else LibraryObject(
        _ANY_INSIDE, node, (owner,)
    )


class HookEvaluator(Machine):
    """Registers hooks, and evaluates them in compiled code."""

    def register_hook(
        self, module: Value, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST,
        scope: NameScope,
    ) -> Value:
        if isinstance(module, LibraryObject) and module.name == _ANY_INSIDE and module.items:
            module = module.items[0]
        key = hook_key(module)
        takes_keywords = keywords.get("with_kwargs")
        if key is not None and self.site is None and arguments:
            known = self.reach.hooks.setdefault(key, [])
            if all(hook.node is not node or hook.function != arguments[0] for hook in known):
                known.append(ModuleHook(
                    arguments[0], scope.file, node, is_backward="backward" in name, is_before="pre" in name,
                    takes_keywords=isinstance(takes_keywords, PythonValue) and takes_keywords.constant is True,
                ))
        return NONE

    def run_hooks(
        self, module: Value, arguments: Sequence[Value], result: Value, node: ast.AST, scope: NameScope,
    ) -> None:
        """Evaluate what the hooks of a module do when compiled code calls it."""
        if self.site is None:
            return
        passed = ContainerValue("tuple", join(arguments) if arguments else UNKNOWN, tuple(arguments) or None)
        for hook in self.reach.hooks.get(hook_key(module), ()):
            if hook.is_backward and self.current is not None:
                self.current.backward_hooks[node] = getattr(hook.node, "lineno", 0)
            if hook.is_backward or self._is_late(hook):
                continue
            given: list[Value] = [module, passed]
            if hook.takes_keywords:
                given.append(ContainerValue("dict"))
            if not hook.is_before:
                given.append(result)
            for function in options(hook.function):
                self.call(function, given, {}, node, scope)

    def _is_late(self, hook: ModuleHook) -> bool:
        """Whether the hook is registered after the compiled code first ran, which then does not call it."""
        for call in self.site.calls if self.site is not None else ():
            is_beside = call.file is hook.file and hook.file.enclosing_function(hook.node) is (
                call.file.enclosing_function(call.node)
            )
            if is_beside and call.node.lineno < getattr(hook.node, "lineno", 0):
                return True
        return False
