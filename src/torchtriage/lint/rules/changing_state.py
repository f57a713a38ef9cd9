"""TT206, TT207, TT220: state that compiled code reads and that changes between calls."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import Reached
from torchtriage.lint.reach.objects import is_module
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.rules.places import frame_place
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import FunctionValue, ObjectValue, PythonValue


@tree_rule
def changing_state(tree: SourceTree) -> Iterator[Finding]:
    """Counters, globals and indices that are constants to the compiler."""
    for reached in reach_of(tree).reached:
        yield from _counters(reached, tree)
        yield from _globals(reached, tree)
        yield from _layer_constants(reached, tree)


def _own_attribute(node: ast.AST, reached: Reached) -> str:
    """`steps` for `self.steps` in a method of a module; empty for anything else."""
    bound = reached.function.bound
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(bound, ObjectValue)):
        return ""
    parameters = reached.function.node.args.args
    is_self = bool(parameters) and node.value.id == parameters[0].arg
    return node.attr if is_self and is_module(bound.instance.of) else ""


def _counters(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    bound = reached.function.bound
    for node in ast.walk(reached.function.node):
        if not isinstance(node, ast.AugAssign) or not isinstance(bound, ObjectValue):
            continue
        name = _own_attribute(node.target, reached)
        value = bound.instance.attributes.get(name)
        if name and isinstance(value, PythonValue) and value.type in ("int", "float") and node.target in reached.values:
            yield source_finding(
                "TT206",
                reached.file,
                node,
                tree,
                reason=name, raised_at=frame_place(reached.path[0].function),
                title=f"self.{name} counts in {reached.name}, which is compiled again for each value",
                cause=f"torch treats a number on a module as a constant; {reached.path_text}",
                fix=f"make it a tensor: self.register_buffer({name!r}, torch.zeros(())), updated in place, or count "
                "outside the compiled function",
            )


def _globals(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    file = reached.file
    local = {n.id for n in ast.walk(reached.function.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {p.arg for p in ast.walk(reached.function.node) if isinstance(p, ast.arg)}
    seen: set[str] = set()
    for node in list(reached.values):
        if not isinstance(node, ast.Name) or node.id in local or node.id in seen:
            continue
        seen.add(node.id)
        value = reached.value(node)
        changed = (
            _changed_at(file, node.id) if isinstance(value, PythonValue) and value.type in ("int", "float") else None
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


def _changed_at(file: SourceFile, name: str) -> ast.stmt | None:
    """The statement that changes a global again and again: an increment, or the loop over its values."""
    owners = [
        f for f in file.of_type(ast.FunctionDef) if any(isinstance(s, ast.Global) and name in s.names for s in f.body)
    ]
    for scope in owners:
        for node in ast.walk(scope):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return node
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):  # noqa: SIM102 - two questions
                if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.value)):
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
    return None


def _layer_constants(reached: Reached, tree: SourceTree) -> Iterator[Finding]:
    """An index that each layer has, read in a forward that all layers share."""
    owner, function = reached.function.owner, reached.function
    if owner is None or len(reached.path) != 1 or not _is_per_instance(reached):
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
                    f"self.{name} counts "
                f"against its recompile limit; {reached.path_text}",
                fix=f"compile the model that holds the layers, once, instead of each layer; or keep self.{name} "
                    f"as a tensor",
            )


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
