"""TT303, TT305, TT309, TT310: torch.compile calls that do nothing, too much or not enough."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import Reach, TargetSite
from torchtriage.lint.rule import file_rule, source_finding, tree_rule
from torchtriage.lint.rules.places import (
    LOOPS,
    assigned_name,
    calls_of_name,
    enclosing_loop,
    frame_place,
    names_in,
    scope_around,
    stored_names,
)
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import FunctionValue, options


@tree_rule
def compile_calls(tree: SourceTree) -> Iterator[Finding]:
    """Every torch.compile call that is discarded, bypassed or made again and again."""
    reach = reach_of(tree)
    seen: set[ast.AST] = set()
    for site in reach.sites:
        if site.node in seen or not isinstance(site.node, ast.Call):
            continue
        seen.add(site.node)
        yield from _discarded(site, tree)
        yield from _wrong_entry(site, tree)
        yield from _repeated(site, reach, tree)
        yield from _bypassed(site, tree)


@tree_rule
def compiled_generators(tree: SourceTree) -> Iterator[Finding]:
    """A generator function that is compiled itself, which torch does not do."""
    seen: set[ast.AST] = set()
    for site in reach_of(tree).sites:
        for target in options(site.target):
            if not isinstance(target, FunctionValue) or target.node in seen or not _yields(target):
                continue
            seen.add(target.node)
            place = frame_place(target)
            yield source_finding(
                "TT302", target.file, target.node, tree, raised_at=place,
                title=f"{target.name} is a generator, which torch does not compile: it runs eager",
                cause=f"a function with yield is skipped; compiled at {site.place}",
                fix=f"return a list or a stacked tensor instead of yielding, or compile what {target.name} calls",
            )


def _yields(function: FunctionValue) -> bool:
    """Whether the function itself yields, not one inside it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function.node))
    for node in waiting:
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def _is_function_call(site: TargetSite) -> bool:
    """Whether it is `torch.compile(f)`, not `module.compile()` and not a decorator."""
    call = site.node
    return isinstance(call, ast.Call) and bool(call.args) and site.file.dotted(call.func) == "torch.compile"


def _discarded(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    if _is_function_call(site) and isinstance(site.file.parent(site.node), ast.Expr):
        text = site.file.segment(site.node)
        yield source_finding(
            "TT303",
            site.file,
            site.node,
            tree,
            title="torch.compile compiled nothing: its result is discarded",
            cause=f"`{text}` returns the compiled function and leaves its argument unchanged",
            fix=f"keep the result and call it: compiled = {text}; or compile a module in place with module.compile()",
        )


def _wrong_entry(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    name = assigned_name(site.file, site.node)
    others = [call for call in site.calls if call.attribute]
    if not name or not others or len(others) != len(site.calls):
        return
    scope = scope_around(site.file, site.node)
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            user = site.file.parent(node)
            if not isinstance(user, ast.Attribute) or user.attr in ("forward", "__call__"):
                return  # it may be called elsewhere
    for call in others[:1]:
        yield source_finding(
            "TT303",
            call.file,
            call.node,
            tree,
            title=f"torch.compile at {site.place} compiles forward, and {name}.{call.attribute} is called",
            cause=f"a compiled module compiles its forward alone; {call.attribute} is the method of the "
                "original module and runs eager",
            fix=f"compile the method: {name}.{call.attribute} = torch.compile({name}.{call.attribute}), or call "
            f"{name}(...) itself",
        )


def _repeated(site: TargetSite, reach: Reach, tree: SourceTree) -> Iterator[Finding]:
    where = _repeats(site, reach)
    if not where:
        return
    yield source_finding(
        "TT309",
        site.file,
        site.node,
        tree,
        title=f"torch.compile is called again and again: {where}",
        cause="each call makes a new compiled function, whose guards and caches begin empty or are searched again",
        fix="call torch.compile once, in __init__ or at the top of the module, outside the forward and the loop, and "
        "keep the result",
    )


def _repeats(site: TargetSite, reach: Reach) -> str:
    """Why a call is made again and again; empty if nothing shows that it is."""
    loop = enclosing_loop(site.file, site.node)
    if isinstance(site.node, ast.Call) and loop is not None:
        depends = names_in(site.node) & stored_names(loop)
        is_kept = _is_stored(site) or _is_guarded(site)
        return "" if depends or is_kept else f"in the loop at line {loop.lineno}"
    inside = site.inside
    if inside is None or not _is_local(site, inside) or _is_guarded(site):
        return ""
    class_ = site.file.enclosing_class(inside.node)
    if inside.name == "forward" and class_ is not None and inside.bound is not None:
        return f"in every call of {class_.name}.forward"
    for file, call in reach.callers.get(inside.node, ()):
        around = enclosing_loop(file, call)
        if around is not None and not any(isinstance(n, LOOPS) for n in ast.walk(inside.node)):
            return f"in {inside.name}, which a loop calls"
    return ""


def _is_stored(site: TargetSite) -> bool:
    """Whether the result is kept in an attribute or a container."""
    parent = site.file.parent(site.node)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
        return True
    return not isinstance(parent, (ast.Assign, ast.Call))


def _is_local(site: TargetSite, inside: FunctionValue) -> bool:
    """Whether the result is used in the function that makes it, and not returned or kept."""
    name = assigned_name(site.file, site.node)
    parent = site.file.parent(site.node)
    if isinstance(parent, ast.Call) and parent.func is site.node:
        return True
    if not name:
        return False
    for node in ast.walk(inside.node):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            user = site.file.parent(node)
            is_inner = site.file.enclosing_function(node) is not inside.node    # a closure keeps it
            if is_inner or not (isinstance(user, ast.Call) and user.func is node):
                return False
    return True


def _is_guarded(site: TargetSite) -> bool:
    """Whether an `if` decides whether the call is made, as in `if self.compiled is None`."""
    for parent in site.file.ancestors(site.node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        if isinstance(parent, ast.If):
            return True
    return False


def _bypassed(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    call, name = site.node, assigned_name(site.file, site.node)
    if not _is_function_call(site) or not isinstance(call, ast.Call) or not isinstance(call.args[0], ast.Name):
        return
    original = call.args[0].id
    if not name or name == original:
        return
    for loop in (node for node in ast.walk(scope_around(site.file, call)) if isinstance(node, LOOPS)):
        direct = calls_of_name(loop, original)
        if calls_of_name(loop, name) and direct and _is_module_call(site):
            yield source_finding(
                "TT310",
                site.file,
                call,
                tree,
                title=f"{name} is compiled, and {original}(...) at line {direct[0].lineno} calls the original module",
                cause=f"the loop at line {loop.lineno} calls both; {original} itself runs eager",
                fix=f"call {name} instead of {original} at line {direct[0].lineno}, or compile in place: "
                f"{original}.compile()",
            )
            return


def _is_module_call(site: TargetSite) -> bool:
    """A function is often called eager on purpose, as a reference; a module is a model."""
    return not isinstance(site.target, FunctionValue)


@file_rule
def suppressed_errors(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """`torch._dynamo.config.suppress_errors = True`."""
    if "suppress_errors" not in file.text:
        return
    for node in file.of_type(ast.Assign):
        for target in node.targets:
            is_setting = file.dotted(target).endswith("_dynamo.config.suppress_errors")
            if is_setting and isinstance(node.value, ast.Constant) and node.value.value is True:
                yield _suppress_errors(file, node, tree)
    for call in file.of_type(ast.Call):
        for keyword in call.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg == "suppress_errors" and is_true and file.dotted(call.func).endswith("config.patch"):
                yield _suppress_errors(file, call, tree)


def _suppress_errors(file: SourceFile, node: ast.AST, tree: SourceTree) -> Finding:
    return source_finding(
        "TT305",
        file,
        node,
        tree,
        title="suppress_errors is set: a failed compile becomes a silent eager run",
        cause="with torch._dynamo.config.suppress_errors a function whose compile fails runs eager, with only a "
            "log line",
        fix="remove the setting, and exclude the code that cannot be compiled with torch.compiler.disable",
    )
