"""TT118, TT303, TT309, TT310: what a torch.compile call returns is never called, made again, or bypassed."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import Reach, TargetSite
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.rules.places import LOOPS, last_part, loops_around, scope_around
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.lint.types.values import FunctionValue, LibraryObject, MethodValue
from torchtriage.lint.variation.bindings import repeats_around

_RESETS = ("torch.compiler.reset", "torch._dynamo.reset")
_CACHES = frozenset({"cache", "lru_cache", "cached"})


@tree_rule
def uses_of_compiled_code(tree: SourceTree) -> Iterator[Finding]:
    """Every torch.compile call, by what is done with its result."""
    reach = reach_of(tree)
    seen: set[ast.AST] = set()
    for site in reach.sites:
        if site.node not in seen and isinstance(site.node, ast.Call):
            seen.add(site.node)
            yield from _made_by_factory(site, reach, tree)
            yield from _reset_in_loop(site, tree)
            yield from _step_of_scheduled_optimizer(site, tree)
            yield from _field_uses(site, tree)
            yield from _compiled_in_place(site, tree)


def _made_by_factory(site: TargetSite, reach: Reach, tree: SourceTree) -> Iterator[Finding]:
    """A function that compiles one of its inner functions, called in a loop that uses the result once."""
    factory, target = site.inside, site.target
    if factory is None or not isinstance(target, FunctionValue) or isinstance(factory.node, ast.Lambda):
        return
    is_inner = any(parent is factory.node for parent in target.file.ancestors(target.node))
    if not is_inner or {last_part(_called(d)) for d in factory.node.decorator_list} & _CACHES:
        return
    if not _is_returned(site, target, factory.node):
        return
    for file, call in reach.callers.get(factory.node, ()):
        loop = next(repeats_around(file, call), None)
        if loop is not None and _is_used_at_once(file, call, loop):
            yield source_finding(
                "TT309", site.file, site.node, tree,
                title=f"torch.compile is called again and again: in {factory.name}, which a loop calls",
                cause=f"line {getattr(call, 'lineno', 0)} calls {factory.name} in a loop; each call compiles a new "
                      f"{target.name}",
                fix=f"call {factory.name} once, before the loop, and pass what changes as an argument",
            )
            return


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _is_returned(site: TargetSite, target: FunctionValue, factory: FunctionNode) -> bool:
    parent = site.file.parent(site.node)
    if isinstance(parent, ast.Return):
        return True
    names = {target.name} if parent is target.node else set()
    if isinstance(parent, ast.Assign):
        names = {t.id for t in parent.targets if isinstance(t, ast.Name)}
    returns = [n.value for n in ast.walk(factory) if isinstance(n, ast.Return)]
    return any(isinstance(value, ast.Name) and value.id in names for value in returns)


def _is_used_at_once(file: SourceFile, call: ast.AST, loop: ast.AST) -> bool:
    """Whether the result is called in the same pass, and not kept."""
    parent = file.parent(call)
    if isinstance(parent, ast.Call) and parent.func is call:
        return True
    names = [t.id for t in parent.targets if isinstance(t, ast.Name)] if isinstance(parent, ast.Assign) else []
    uses = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)]
    return bool(uses) and all(getattr(file.parent(use), "func", None) is use for use in uses)


def _reset_in_loop(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    for call in site.calls:
        for loop in loops_around(call.file, call.node):
            if any(node is site.node for node in ast.walk(loop)):
                continue        # compiled in the same pass: another function or setting is tried in each
            for node in ast.walk(loop):
                if isinstance(node, ast.Call) and call.file.dotted(node.func) in _RESETS:
                    yield source_finding(
                        "TT309", call.file, node, tree,
                        title=f"{call.file.segment(node)} in a loop makes torch compile everything again",
                        cause=f"the loop at line {loop.lineno} calls code that is compiled at {site.place}, and drops "
                              "it in each pass",
                        fix="take the reset out of the loop: compiled code stays valid while weights and data change",
                    )
                    return


def _step_of_scheduled_optimizer(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    """torch.compile(optimizer.step) after a scheduler wrapped that step."""
    call, target = site.node, site.target
    is_step = isinstance(target, MethodValue) and target.name == "step" and isinstance(target.owner, LibraryObject)
    if not isinstance(call, ast.Call) or not is_step or not call.args or not isinstance(call.args[0], ast.Attribute):
        return
    optimizer = site.file.segment(call.args[0].value)
    for node in ast.walk(scope_around(site.file, call)):
        if not isinstance(node, ast.Call) or not node.args or node.lineno >= call.lineno:
            continue
        is_scheduler = site.file.dotted(node.func).startswith("torch.optim.lr_scheduler.")
        if is_scheduler and site.file.segment(node.args[0]) == optimizer:
            yield source_finding(
                "TT118", site.file, call, tree, severity=Severity.P4,
                title=f"{optimizer}.step is compiled after a scheduler wrapped it",
                cause=f"the scheduler at line {node.lineno} replaces {optimizer}.step by a wrapper that counts, which "
                      "is what is compiled",
                fix=f"call torch.compile({optimizer}.step) before the scheduler is made",
            )
            return


def _own_field(node: ast.AST | None) -> str:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else ""


def _field_uses(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    """A compiled module in a field of self: never used, used by another method, or bypassed."""
    call, parent = site.node, site.file.parent(site.node)
    name = _own_field(parent.targets[0]) if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else ""
    class_ = site.file.enclosing_class(call)
    is_plain = isinstance(call, ast.Call) and bool(call.args) and site.file.dotted(call.func) == "torch.compile"
    if not name or class_ is None or not is_plain or not isinstance(call, ast.Call):
        return
    original = _original_field(call.args[0], site.file, call)
    if not original or original == name or isinstance(site.target, FunctionValue):
        original = ""
    loads = list(_loads(name, tree))
    originals = [n for n in ast.walk(class_) if isinstance(n, ast.Call) and _own_field(n.func) == original] \
        if original else []
    if not loads and originals:
        yield _bypass(site, tree, "TT303", name, original, originals[0])
    elif originals and any(getattr(file.parent(node), "func", None) is node for file, node in loads):
        yield _bypass(site, tree, "TT310", name, original, originals[0])
    elif loads and not isinstance(site.target, FunctionValue):
        yield from _other_method(site, tree, name, loads)


def _original_field(argument: ast.expr, file: SourceFile, call: ast.Call) -> str:
    """The field that holds the module which is compiled: the argument itself, or where __init__ keeps it too."""
    if not isinstance(argument, ast.Name):
        return _own_field(argument)
    for node in ast.walk(scope_around(file, call)):
        is_kept = isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == argument.id
        if isinstance(node, ast.Assign) and is_kept:
            return _own_field(node.targets[0])
    return ""


def _loads(name: str, tree: SourceTree) -> Iterator[tuple[SourceFile, ast.AST]]:
    """Every place of the project that reads a field of this name, by attribute or as a text."""
    for file in tree.files:
        if name in file.text:
            for node in file.of_type(ast.Attribute):
                if node.attr == name and isinstance(node.ctx, ast.Load):
                    yield file, node
            for text in file.of_type(ast.Constant):
                if text.value == name:
                    yield file, text


def _bypass(site: TargetSite, tree: SourceTree, code: str, name: str, original: str, call: ast.Call) -> Finding:
    is_unused = code == "TT303"
    return source_finding(
        code, site.file, site.node, tree,
        title=f"torch.compile compiled nothing: nothing reads self.{name}" if is_unused else
        f"self.{name} is compiled, and self.{original}(...) at line {call.lineno} calls the original module",
        cause=f"line {call.lineno} calls self.{original}, the original module, which runs eager",
        fix=f"call self.{name} instead of self.{original}, or compile in place: self.{original}.compile()",
    )


def _other_method(
    site: TargetSite, tree: SourceTree, name: str, loads: list[tuple[SourceFile, ast.AST]],
) -> Iterator[Finding]:
    users = [file.parent(node) for file, node in loads]
    called = [file.parent(user) for (file, _), user in zip(loads, users, strict=True) if user is not None]
    methods = {user.attr for user in users if isinstance(user, ast.Attribute)}
    is_called = all(isinstance(c, ast.Call) and c.func is u for c, u in zip(called, users, strict=True))
    if len(called) != len(users) or len(methods) != 1 or not is_called or methods & _OF_MODULES:
        return
    method, (file, node) = methods.pop(), loads[0]
    yield source_finding(
        "TT303", file, node, tree,
        title=f"torch.compile at {site.place} compiles forward, and self.{name}.{method} is called",
        cause=f"a compiled module compiles its forward alone; {method} is the method of the original module and runs "
              "eager",
        fix=f"compile the method: self.{name}.{method} = torch.compile(self.{name}.{method}), or call self.{name}(...) "
            "itself",
    )


_OF_MODULES = frozenset({
    "forward", "__call__", "eval", "train", "to", "parameters", "state_dict", "load_state_dict", "cuda", "cpu",
    "children", "modules", "named_parameters", "zero_grad", "requires_grad_", "apply", "buffers", "named_modules",
    "half", "float",
})


def _compiled_in_place(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    """`self.layers.compile()`, and forward loops over the layers instead of calling it."""
    call = site.node
    in_place = call.func if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    name = _own_field(in_place.value) if in_place is not None and in_place.attr == "compile" else ""
    class_ = site.file.enclosing_class(call)
    if not name or class_ is None or in_place is None:
        return
    loads = [node for _, node in _loads(name, tree) if node is not in_place.value]
    parents = [site.file.parent(node) for node in loads]
    loops = [p for p in parents if isinstance(p, (*LOOPS, ast.comprehension))]
    if loops and len(loops) == len(parents):
        yield source_finding(
            "TT303", site.file, call, tree,
            title=f"torch.compile compiled nothing: self.{name} is not called",
            cause=f"`{site.file.segment(call)}` compiles the forward of self.{name}, and the code loops over its items",
            fix=f"call self.{name}(x), or compile the module around it, or each item: layer.compile()",
        )
