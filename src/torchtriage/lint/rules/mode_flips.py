"""TT208, TT209, TT210: a compiled function that is called under alternating modes."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import SiteCall, TargetSite
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.rules.places import NO_GRAD, assigned_name, enclosing_loop, is_under, loops_around, with_items
from torchtriage.lint.source import SourceFile
from torchtriage.lint.variation.describe import Describer
from torchtriage.lint.variation.kinds import any_varies

# Each mode is compiled once, so a flip settles, as it does at run time.
_SETTLES = Severity.P4
_SETTINGS = frozenset({
    "torch.set_num_threads", "torch.set_default_dtype", "torch.use_deterministic_algorithms",
    "torch.set_float32_matmul_precision", "torch.set_default_device",
})
_AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast")


@tree_rule
def mode_flips(tree: SourceTree) -> Iterator[Finding]:
    """Calls of one compiled function under different modes."""
    reach = reach_of(tree)
    describer = Describer(tree, reach)
    for site in reach.sites:
        yield from _grad_flips(site, tree)
        yield from _autocast_flips(site, tree, describer)
        yield from _setting_flips(site, tree, describer)
        yield from _autocast_beside(site, tree)
        yield from _train_flips(site, tree)


def _grad_flips(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    calls = [call for call in site.calls if not call.attribute]
    without = [call for call in calls if is_under(call, NO_GRAD)]
    with_grad = [call for call in calls if call not in without]
    beside = [(one, other) for one in without for other in with_grad if _is_beside(one, other)]
    if beside:
        call, other = beside[0]
        yield source_finding(
            "TT209",
            call.file,
            call.node,
            tree,
            severity=_SETTLES,
            title=f"{call.file.segment(call.node.func)} is compiled twice: with and without gradient recording",
            cause=f"the call is under no_grad, that at line {other.node.lineno} is not; grad mode is a guard; "
                f"compiled at {site.place}",
            fix="nothing if one extra compile is fine; else compile one function for each mode, or call it "
                "under one mode and detach() the result",
        )


def _is_beside(one: SiteCall, other: SiteCall) -> bool:
    """Whether two calls are in one function or loop; a validation in another function is compiled once, as meant."""
    return one.file is other.file and one.file.enclosing_function(one.node) is other.file.enclosing_function(other.node)


def _autocast_flips(site: TargetSite, tree: SourceTree, describer: Describer) -> Iterator[Finding]:
    """A context manager around a call that is autocast in some passes only, or that a varying flag enables."""
    for call in site.calls:
        for item in with_items(call.file, call.node):
            kinds = describer.of(item, call.file)
            is_on = any(kind.type == "autocast" for kind in kinds)
            choice = _choice(call.file, item)
            if choice is None and not (is_on and (len(kinds) > 1 or any_varies(kinds))):
                continue
            text = call.file.segment(item if choice is None else choice)
            yield source_finding(
                "TT210", call.file, call.node, tree, severity=_SETTLES,
                title=f"{call.file.segment(call.node.func)} is compiled twice: with and without autocast",
                cause=f"`{text}` decides whether autocast is on; it is a guard; compiled at {site.place}",
                fix="keep autocast on or off for all calls: torch.autocast(..., enabled=...) with a constant, or "
                    "compile one function for each",
            )
            return


def _setting_flips(site: TargetSite, tree: SourceTree, describer: Describer) -> Iterator[Finding]:
    """A global setting of torch that the loop around a call gives other values."""
    for call in site.calls:
        for loop in loops_around(call.file, call.node):
            for node in ast.walk(loop):
                name = call.file.dotted(node.func) if isinstance(node, ast.Call) and node.args else ""
                if not isinstance(node, ast.Call) or name not in _SETTINGS:
                    continue
                if any_varies(describer.of(node.args[0], call.file)):
                    yield source_finding(
                        "TT210", call.file, call.node, tree, severity=_SETTLES, reason=name,
                        title=f"{call.file.segment(call.node.func)} is compiled again for each value of {name}",
                        cause=f"`{call.file.segment(node)}` at line {node.lineno} changes it in the loop; it is a "
                              f"guard; compiled at {site.place}",
                        fix=f"call {name} once, before the loop",
                    )
                    return


def _autocast_beside(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    """One call under autocast and one without, in the same loop."""
    calls = [call for call in site.calls if not call.attribute]
    under = [call for call in calls if is_under(call, _AUTOCAST)]
    for call in under:
        loop = enclosing_loop(call.file, call.node)
        for other in calls:
            if loop is not None and other not in under and enclosing_loop(other.file, other.node) is loop:
                yield source_finding(
                    "TT210", call.file, call.node, tree, severity=_SETTLES,
                    title=f"{call.file.segment(call.node.func)} is compiled twice: with and without autocast",
                    cause=f"the call is under autocast, that at line {other.node.lineno} is not; autocast is a guard; "
                    f"compiled at {site.place}",
                    fix="keep autocast on or off for all calls, or compile one function for each",
                )
                return


def _choice(file: SourceFile, node: ast.expr) -> ast.expr | None:
    """The conditional expression of which one side is an autocast: there, or in the method that returns it."""
    if isinstance(node, ast.IfExp):
        sides = [side.func if isinstance(side, ast.Call) else side for side in (node.body, node.orelse)]
        num_on = sum(file.dotted(side) in _AUTOCAST for side in sides)
        return node if num_on == 1 else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        class_ = file.enclosing_class(node)
        for method in class_.body if class_ is not None and node.func.value.id == "self" else ():
            if isinstance(method, ast.FunctionDef) and method.name == node.func.attr:
                returned = [s.value for s in ast.walk(method) if isinstance(s, ast.Return) and s.value is not None]
                return next(
                    (value for value in returned if isinstance(value, ast.IfExp) and _choice(file, value)), None
                )
    return None


def _train_flips(site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    names = {assigned_name(site.file, site.node)}
    if isinstance(site.node, ast.Call) and site.node.args and isinstance(site.node.args[0], ast.Name):
        names.add(site.node.args[0].id)
    names.discard("")
    seen: set[ast.AST] = set()
    for call in site.calls:
        loop = enclosing_loop(call.file, call.node)
        if loop is None or loop in seen or call.file is not site.file:
            continue
        seen.add(loop)
        train, evaluate = _mode_call(loop, names, "train"), _mode_call(loop, names, "eval")
        num_calls = sum(enclosing_loop(c.file, c.node) is loop for c in site.calls if not c.attribute)
        if train is not None and evaluate is not None and num_calls > 1:
            yield source_finding(
                "TT208",
                call.file,
                train,
                tree,
                severity=_SETTLES,
                title=f"{site.file.segment(call.node.func)} is compiled twice: the loop alternates between "
                    f"train and eval",
                cause=f"train() here and eval() at line {evaluate.lineno}; the mode of a module is a guard; "
                    f"compiled at {site.place}",
                fix="nothing if one extra compile is fine; else evaluate with the original module, or after the loop",
            )


def _mode_call(loop: ast.AST, names: set[str], mode: str) -> ast.Call | None:
    for node in ast.walk(loop):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == mode
            and not node.args
        ) and isinstance(node.func.value, ast.Name) and node.func.value.id in names:
            return node
    return None
