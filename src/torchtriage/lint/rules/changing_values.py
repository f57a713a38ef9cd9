"""TT203 to TT205, TT216 to TT218, TT224: arguments of compiled functions that change from call to call."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torchtriage.findings.model import Finding
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import SiteCall, TargetSite
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.rules.places import frame_place, loops_around, names_in, scope_around
from torchtriage.lint.types.values import (
    ContainerValue,
    FunctionValue,
    LibraryName,
    ObjectValue,
    PythonValue,
    Value,
    is_none,
    options,
)

_SPECIALISES = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of one call of a compiled function, with the parameter that receives it."""

    call: SiteCall
    node: ast.expr
    parameter: str


@tree_rule
def changing_arguments(tree: SourceTree) -> Iterator[Finding]:
    """Arguments that a loop changes, and that the compiled code treats as constants."""
    reach = reach_of(tree)
    for site in reach.sites:
        function = _function(site, tree)
        if function is None:
            continue
        for call in site.calls:
            for argument in _arguments(call, function):
                yield from _changes(argument, function, site, tree)
        yield from _none_or_not(site, function, tree)


def _function(site: TargetSite, tree: SourceTree) -> FunctionValue | None:
    """The function that a site compiles: itself, or the forward of a module of the project."""
    for target in (*site.bound, *options(site.target)):
        if isinstance(target, FunctionValue):
            return target
        if isinstance(target, ObjectValue):
            member = target.instance.of.members.get("forward")
            if isinstance(member, FunctionValue):
                return FunctionValue(member.file, member.node, member.outer, target, member.owner)
    return None


def _parameters(function: FunctionValue) -> list[str]:
    spec = function.node.args
    names = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
    return names[1:] if function.bound is not None or function.owner is not None else names


def _arguments(call: SiteCall, function: FunctionValue) -> Iterator[Argument]:
    if call.attribute or any(isinstance(a, ast.Starred) for a in call.node.args):
        return
    for name, node in zip(_parameters(function), call.node.args, strict=False):
        yield Argument(call, node, name)
    for keyword in call.node.keywords:
        if keyword.arg:
            yield Argument(call, keyword.value, keyword.arg)


def _changes(argument: Argument, function: FunctionValue, site: TargetSite, tree: SourceTree) -> Iterator[Finding]:
    for loop in loops_around(argument.call.file, argument.call.node):
        if not isinstance(loop, ast.For):
            continue
        kinds = _loop_values(loop, argument)
        names = names_in(argument.node) & set(kinds)
        if isinstance(argument.node, ast.Name) and names:
            kind = kinds[argument.node.id]
            if kind == "int" and _needs_int(function, argument.parameter):
                yield _found(
                    function, "TT204", argument, site, tree, "int", "is used as an index or a bound, so each "
                        "value is compiled"
                )
            elif kind == "float" and _needs_float(function, argument.parameter):
                yield _found(function, "TT205", argument, site, tree, "float", "is a constant of the operator "
                    "that receives it")
            elif kind == "str":
                yield _found(function, "TT224", argument, site, tree, "text", "is a constant to the compiler")
        elif names and isinstance(argument.node, ast.ListComp) and _counts(argument.node, names):
            yield _found(function, "TT217", argument, site, tree, "length", "is a guard, so each length is compiled")
        elif isinstance(argument.node, ast.Dict) and any(
            k is not None and names_in(k) & set(kinds) for k in argument.node.keys
        ):
            yield _found(function, "TT216", argument, site, tree, "keys", "are a guard, so each set of keys is "
                "compiled")
        elif isinstance(argument.node, ast.Name):
            code = _growth(loop, argument.node.id, kinds)
            if code:
                what = "keys" if code == "TT216" else "length"
                yield _found(function, code, argument, site, tree, what, "changes in the loop, and each is compiled")


def _loop_values(loop: ast.For, argument: Argument) -> dict[str, str]:
    """The names that a loop gives a new Python value in each pass, with the type of it."""
    iterated, target = loop.iter, loop.target
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and isinstance(target, ast.Name):
        return {target.id: "int"} if iterated.func.id == "range" else {}
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "enumerate":
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
        return {first.id: "int"} if isinstance(first, ast.Name) else {}
    if isinstance(target, ast.Name):
        items = _literal(iterated, argument)
        types = {type(item.value).__name__ for item in items if isinstance(item, ast.Constant)}
        if len(items) > 1 and len(types) == 1 and all(isinstance(item, ast.Constant) for item in items):
            return {target.id: types.pop()}
    return {}


def _literal(node: ast.expr, argument: Argument) -> list[ast.expr]:
    """The items of a tuple or list that is written out, there or at the top of the file."""
    if isinstance(node, ast.Name):
        for statement in argument.call.file.tree.body:
            names = (
                [t.id for t in statement.targets if isinstance(t, ast.Name)]
                if isinstance(statement, ast.Assign)
                else []
            )
            if node.id in names and isinstance(statement, ast.Assign):
                node = statement.value
                break
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else []


def _needs_int(function: FunctionValue, name: str) -> bool:
    """Whether the code needs the number itself: an index into a list, the bound of a range."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == name:
            owner = node.value
            if isinstance(owner, ast.Name) and isinstance(
                _global_value(function, owner.id), (ast.List, ast.Tuple, ast.Dict)
            ):
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":  # noqa: SIM102 - two questions
            if any(isinstance(a, ast.Name) and a.id == name for a in node.args):
                return True
    return False


def _global_value(function: FunctionValue, name: str) -> ast.expr | None:
    for statement in function.file.tree.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            return statement.value
    return None


def _needs_float(function: FunctionValue, name: str) -> bool:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call):
            called = function.file.dotted(node.func).rpartition(".")[2]
            given = [*node.args, *(k.value for k in node.keywords)]
            if called in _SPECIALISES and any(isinstance(a, ast.Name) and a.id == name for a in given):
                return True
    return False


def _counts(node: ast.ListComp, names: set[str]) -> bool:
    """Whether the number of items depends on these names."""
    return any(names_in(part.iter) & names for part in node.generators)


def _growth(loop: ast.For, name: str, kinds: dict[str, str]) -> str:
    """TT217 for a list that the loop fills and passes on, TT216 for a dict to which it adds keys; else empty."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":  # noqa: SIM102 - two questions
            if _is_variable(node.func.value, name):
                return "TT217"
        for target in node.targets if isinstance(node, ast.Assign) else ():
            is_new_key = (
                isinstance(target, ast.Subscript)
                and _is_variable(target.value, name)
                and isinstance(target.slice, (ast.JoinedStr, ast.Tuple))
                and names_in(target.slice) & set(kinds)
            )
            if is_new_key:
                return "TT216"
    return ""


def _is_variable(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _found(
    function: FunctionValue, code: str, argument: Argument, site: TargetSite, tree: SourceTree, what: str, why: str,
) -> Finding:
    name = argument.call.file.segment(argument.call.node.func)
    return source_finding(
        code,
        argument.call.file,
        argument.call.node,
        tree,
        title=f"{name} is compiled again for each {what} of {argument.parameter}"
        if what != "keys"
        else f"{name} is compiled again when the keys of {argument.parameter} change",
        cause=f"the loop around the call changes `{argument.call.file.segment(argument.node)}`; "
            f"{argument.parameter} {why}; "
        f"compiled at {site.place}",
        fix=_FIXES[code].format(name=argument.parameter),
        reason=argument.parameter, raised_at=frame_place(function),
    )


_FIXES = {
    "TT204": "pass {name} as a tensor (torch.tensor(value)) and index a tensor with it, or index before the call",
    "TT205": "pass {name} as a 0-dimensional tensor, or apply the operator outside the compiled function",
    "TT216": "stack the values into one tensor with a fixed size, and keep the keys outside the compiled function",
    "TT217": "pad to a fixed number of items, or stack the tensors into one before the compiled call",
    "TT218": "pass a tensor in every call (a mask of ones instead of None), or compile one function for each case",
    "TT224": "keep {name} the same, or choose the function by {name} outside the compiled call",
}


def _none_or_not(site: TargetSite, function: FunctionValue, tree: SourceTree) -> Iterator[Finding]:
    spec = function.node.args
    names = _parameters(function)
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    calls = [call for call in site.calls if not call.attribute]
    for number, name in enumerate(names):
        default = defaults.get(name)
        is_none_default = isinstance(default, ast.Constant) and default.value is None
        given = [_passed(call, number, name) for call in calls]
        missing = [(v is None and is_none_default) or (v is not None and is_none(v)) for v in given]
        present = [v is not None and not is_none(v) and not isinstance(v, PythonValue) and _is_known(v) for v in given]
        if any(missing) and any(present):
            call = calls[present.index(True)]
            argument = Argument(call, call.node, name)
            yield source_finding(
                "TT218",
                call.file,
                call.node,
                tree,
                reason=name, raised_at=frame_place(function),
                title=f"{call.file.segment(call.node.func)} is compiled twice: {name} is sometimes None",
                cause=f"{name} is None at line {calls[missing.index(True)].node.lineno} and a value here; compiled at "
                f"{site.place}",
                fix=_FIXES["TT218"].format(name=argument.parameter),
            )


def _is_known(value: Value) -> bool:
    return type(value) is not Value and not isinstance(value, (LibraryName, ContainerValue))


def _passed(call: SiteCall, number: int, name: str) -> Value | None:
    return call.arguments[number] if number < len(call.arguments) else call.keywords.get(name)


@tree_rule
def ragged_batches(tree: SourceTree) -> Iterator[Finding]:
    """dynamic=False and a DataLoader whose last batch may be smaller."""
    for site in reach_of(tree).sites:
        if not site.is_set("dynamic", False):
            continue
        for call in site.calls:
            loader = None if "mark_dynamic" in call.file.text else _loader(call)
            if loader is not None:
                yield source_finding(
                    "TT203",
                    site.file,
                    site.node,
                    tree,
                    may=True,
                    title="the last batch of the loader may be smaller, and dynamic=False compiles it again",
                    cause=f"the loader at line {loader.lineno} keeps a last batch of another size; each size is "
                        f"compiled "
                    "with dynamic=False",
                    fix="drop_last=True in the DataLoader, or drop dynamic=False, or "
                    "torch._dynamo.maybe_mark_dynamic(batch, 0)",
                )
                break


def _loader(call: SiteCall) -> ast.Call | None:
    """The DataLoader that the loop around a call iterates over, if it keeps a smaller last batch."""
    for loop in loops_around(call.file, call.node):
        names = names_in(loop.iter) if isinstance(loop, ast.For) else set()
        for node in ast.walk(scope_around(call.file, call.node)):
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
                continue
            is_loader = call.file.dotted(node.value.func).endswith(".DataLoader")
            is_iterated = any(isinstance(t, ast.Name) and t.id in names for t in node.targets)
            if is_loader and is_iterated and not _drops_last(node.value):
                return node.value
    return None


def _drops_last(call: ast.Call) -> bool:
    given = {k.arg: k.value for k in call.keywords}
    value = given.get("drop_last")
    is_false = value is None or (isinstance(value, ast.Constant) and value.value is False)
    return not is_false or "batch_sampler" in given or "batch_size" not in given or None in given
