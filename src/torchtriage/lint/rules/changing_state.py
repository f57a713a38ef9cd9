"""TT206, TT207, TT217, TT220: compiled code reads state that changes between calls."""

import ast
from collections.abc import Iterator, Mapping

from torchtriage.findings.catalogue import rule
from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import Reached
from torchtriage.lint.reach.objects import is_module
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.rules.places import frame_place
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import (
    UNKNOWN,
    ContainerValue,
    FunctionValue,
    NameScope,
    ObjectValue,
    PythonValue,
    Value,
    element_of,
    options,
)
from torchtriage.lint.variation.describe import Describer
from torchtriage.lint.variation.kinds import any_varies

_GUARDED = ("int", "float", "bool", "str")


@tree_rule
def changing_state(tree: SourceTree) -> Iterator[Finding]:
    """Counters, globals and indices that are constants to the compiler."""
    reach = reach_of(tree)
    describer = Describer(tree, reach)
    for reached in reach.reached:
        yield from _counters(reached, tree)
        yield from _globals(reached, tree, describer)
        yield from _global_items(reached, tree)
        yield from _layer_constants(reached, tree)
        yield from _growing_lists(reached, tree)
        yield from _growing_globals(reached, tree)


def _own_attribute(node: ast.AST, reached: Reached) -> str:
    """`steps` for `self.steps` in a method of an object; empty for anything else."""
    bound = reached.function.bound
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(bound, ObjectValue)):
        return ""
    parameters = reached.function.node.args.args
    return node.attr if bool(parameters) and node.value.id == parameters[0].arg else ""


def _counters(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    bound = reached.function.bound
    for node in ast.walk(reached.function.node):
        target = _counted(node, reached)
        if target is None or not isinstance(bound, ObjectValue):
            continue
        name = _own_attribute(target, reached)
        value = bound.instance.attributes.get(name)
        if name and isinstance(value, PythonValue) and value.type in ("int", "float") and _is_evaluated(node, reached):
            on_module = is_module(bound.instance.of)
            yield source_finding(
                "TT206",
                reached.file,
                node,
                tree,
                severity=rule("TT206").severity if on_module else Severity.P4,
                reason=name, raised_at=frame_place(reached.path[0].function),
                title=f"self.{name} counts in {reached.name}, which is compiled "
                      + ("again for each value" if on_module else "a second time"),
                cause=("torch treats a number on a module as a constant" if on_module
                       else "torch treats a number on an object as a constant until it first changes")
                      + f"; {reached.path_text}",
                fix=("make it a tensor: " + (f"self.register_buffer({name!r}, torch.zeros(()))" if on_module
                                             else f"self.{name} = torch.zeros(())")
                     + ", updated in place, or count outside the compiled function"),
            )


def _counted(node: ast.AST, reached: Reached) -> ast.expr | None:
    """The target of `self.n += 1`, or of `self.n = self.n + 1`."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        name = _own_attribute(node.targets[0], reached)
        reads = [part for part in (node.value.left, node.value.right) if _own_attribute(part, reached) == name]
        return node.targets[0] if name and reads else None
    return None


def _is_evaluated(node: ast.AST, reached: Reached) -> bool:
    return any(inner in reached.values for inner in ast.walk(node))


def _globals(reached: Reached, tree: SourceTree, describer: Describer) -> Iterator[Finding]:
    file = reached.file
    local = _local_names(reached)
    seen: set[str] = set()
    for node in list(reached.values):
        if not isinstance(node, ast.Name) or node.id in local or node.id in seen or _is_enclosed(node.id, reached):
            continue
        seen.add(node.id)
        value = reached.value(node)
        changed = (
            _changed_at(file, node.id, describer) if isinstance(value, PythonValue) and value.type in _GUARDED else None
        )
        if changed is not None:
            yield source_finding(
                "TT220",
                file,
                node,
                tree,
                reason=node.id, raised_at=frame_place(reached.path[0].function),
                title=f"the global {node.id} changes, and {reached.name} is compiled again for each value",
                cause=f"a global is a constant to the compiler; line {changed.lineno} changes it; {reached.path_text}",
                fix=f"pass {node.id} as an argument, as a tensor if it changes in each step",
            )


def _global_items(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    """`STATS["calls"] += 1`: an item of a dict or list at the top of a file that counts in compiled code."""
    file, module = reached.file, file_names(reached)
    for node in ast.walk(reached.function.node):
        target = node.target if isinstance(node, ast.AugAssign) else None
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        held, name = module.get(target.value.id), file.segment(target)
        counts = isinstance(held, ContainerValue) and isinstance(element_of(held), PythonValue)
        if counts and _is_evaluated(node, reached) and isinstance(target.slice, ast.Constant):
            yield source_finding(
                "TT220", file, node, tree, reason=name, raised_at=frame_place(reached.path[0].function),
                title=f"the global {name} changes, and {reached.name} is compiled again for each value",
                cause=f"an item of a global is a constant to the compiler; {reached.path_text}",
                fix=f"make {name} a tensor that is changed in place, or count outside the compiled function",
            )


def file_names(reached: Reached) -> Mapping[str, Value]:
    """The names at the top of the file of a function, without those that the function binds itself."""
    outer = reached.function.outer
    while outer.outer is not None:
        outer = outer.outer
    own = _local_names(reached)
    return {name: value for name, value in outer.names.items() if name not in own}


def _local_names(reached: Reached) -> set[str]:
    nodes = list(ast.walk(reached.function.node))
    assigned = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return assigned | {p.arg for p in nodes if isinstance(p, ast.arg)}


def _is_enclosed(name: str, reached: Reached) -> bool:
    """Whether a function around the compiled one has the name, so that it is no global."""
    outer: NameScope | None = reached.function.outer
    while outer is not None:
        if outer.function is not None and name in outer.names:
            return True
        outer = outer.outer
    return False


def _changed_at(file: SourceFile, name: str, describer: Describer) -> ast.stmt | None:
    """The statement that changes a global again and again: an increment, or the loop over its values."""
    owners = [
        f for f in file.of_type(ast.FunctionDef) if any(isinstance(s, ast.Global) and name in s.names for s in f.body)
    ]
    for scope in owners:
        for node in ast.walk(scope):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return node
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):  # noqa: SIM102 - two questions
                if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.value)) or any_varies(
                    describer.of(node.value, file)
                ):
                    return node
    for statement in file.tree.body:
        if isinstance(statement, (ast.For, ast.While)):
            if (
                isinstance(statement, ast.For)
                and isinstance(statement.target, ast.Name)
                and statement.target.id == name
            ):
                return statement
            for node in ast.walk(statement):
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                    return node
                is_set = isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == name for t in node.targets
                )
                if isinstance(node, ast.Assign) and is_set and any_varies(describer.of(node.value, file)):
                    return node
    return None


def _layer_constants(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    """An index that each layer has, read in a forward that all layers share."""
    owner, function = reached.function.owner, reached.function
    if owner is None or not is_module(owner) or len(reached.path) != 1 or not _is_per_instance(reached):
        return
    seen: set[str] = set()
    for node in list(reached.values):
        name = _own_attribute(node, reached)
        if name in seen or not name:
            continue
        seen.add(name)
        parameter = _init_parameter(function, name)
        if parameter is not None and _varies(tree, owner.node.name, parameter):
            yield source_finding(
                "TT207",
                reached.file,
                node,
                tree,
                reason=name, raised_at=frame_place(reached.path[0].function),
                title=f"self.{name} differs from layer to layer, and {reached.name} is compiled for each",
                cause=f"all {owner.node.name} objects share the code of {reached.name}, and each value of "
                    f"self.{name} counts against its recompile limit; {reached.path_text}",
                fix=f"compile the model that holds the layers, once, instead of each layer; or keep self.{name} "
                    f"as a tensor",
            )


def _growing_lists(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    """A list of the object that compiled code makes longer in each call."""
    for call in list(reached.values):
        called = call.func if isinstance(call, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr not in ("append", "extend", "insert"):
            continue
        bound, name = reached.function.bound, _own_name(called.value, reached)
        held = bound.instance.attributes.get(name) if isinstance(bound, ObjectValue) and name else None
        is_list = held is not None and all(isinstance(o, ContainerValue) and o.kind == "list" for o in options(held))
        given = [reached.value(argument) for argument in getattr(call, "args", ())]
        is_inner = len(reached.path) > 1 and UNKNOWN in given       # what makes the value may keep the function eager
        if is_list and not is_inner and not _is_emptied(reached, name):
            yield source_finding(
                "TT217", reached.file, call, tree, reason=name, raised_at=frame_place(reached.path[0].function),
                title=f"self.{name} grows in {reached.name}, which is compiled again for each length",
                cause=f"the length of a list is a guard; {reached.path_text}",
                fix=f"return the value and append it to self.{name} outside the compiled function",
            )


def _growing_globals(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    """A list at the top of a file that compiled code makes longer in each call."""
    module = file_names(reached)
    for call in list(reached.values):
        called = call.func if isinstance(call, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr not in ("append", "extend", "insert"):
            continue
        name = called.value.id if isinstance(called.value, ast.Name) else ""
        held = module.get(name)
        is_list = held is not None and all(isinstance(o, ContainerValue) and o.kind == "list" for o in options(held))
        if is_list and not _is_enclosed(name, reached):
            yield source_finding(
                "TT217", reached.file, call, tree, reason=name, raised_at=frame_place(reached.path[0].function),
                title=f"{name} grows in {reached.name}, which is compiled again for each length",
                cause=f"the length of a list is a guard; {reached.path_text}",
                fix=f"return the value and append it to {name} outside the compiled function",
            )


def _own_name(node: ast.AST, reached: Reached) -> str:
    """`seen` for `self.seen`, in a method of any class."""
    parameters = reached.function.node.args.args
    is_self = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and bool(parameters)
    return node.attr if isinstance(node, ast.Attribute) and is_self and (
        getattr(node.value, "id", "") == parameters[0].arg
    ) else ""


def _is_emptied(reached: Reached, name: str) -> bool:
    """Whether the same function begins with an empty list."""
    for node in ast.walk(reached.function.node):
        if isinstance(node, ast.Assign) and any(_own_name(target, reached) == name for target in node.targets):
            return True
        cleared = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if cleared is not None and cleared.attr == "clear" and _own_name(cleared.value, reached) == name:
            return True
    return False


def _is_per_instance(reached: Reached) -> bool:
    """Whether each layer is compiled by itself: by a decorator in its class, or by layer.compile()."""
    node = reached.site.node
    is_decorator = reached.file.parent(node) is reached.function.node
    return is_decorator or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "compile"
        and not node.args
    )


def _init_parameter(function: FunctionValue, name: str) -> tuple[int, str] | None:
    """(position, name) of the parameter of __init__ that an attribute is set to."""
    init = function.owner.members.get("__init__") if function.owner else None
    if not isinstance(init, FunctionValue):
        return None
    parameters = [p.arg for p in init.node.args.args][1:]
    for node in ast.walk(init.node):
        if isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                is_own = isinstance(target, ast.Attribute) and target.attr == name
                if is_own and isinstance(value, ast.Name) and value.id in parameters:
                    return parameters.index(value.id), value.id
    return None


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _varies(tree: SourceTree, class_name: str, parameter: tuple[int, str]) -> bool:
    """Whether a comprehension or loop makes objects of the class with another number each."""
    position, name = parameter
    for file in tree.files:
        if class_name not in file.text:
            continue
        for call in file.of_type(ast.Call):
            if not (isinstance(call.func, ast.Name) and call.func.id == class_name):
                continue
            given = (
                call.args[position]
                if position < len(call.args)
                else next((k.value for k in call.keywords if k.arg == name), None)
            )
            if given is not None and _is_loop_index(given, file):
                return True
    return False


def _is_loop_index(node: ast.expr, file: SourceFile) -> bool:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    for parent in file.ancestors(node):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(parent, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            pairs = [(part.target, part.iter) for part in parent.generators]
        elif isinstance(parent, ast.For):
            pairs = [(parent.target, parent.iter)]
        for target, iterated in pairs:
            called = iterated.func.id if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) else ""
            targets = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            if called in ("range", "enumerate") and names & targets:
                return True
    return False
