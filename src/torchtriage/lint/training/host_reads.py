"""TT701, TT702, TT737: tensors read or stacked one by one."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.index.gradients import is_on_device, is_parameter_iterable, parameter_lists
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    COMPREHENSIONS,
    assigned_value,
    calls,
    functions,
    is_disabled,
    last_name,
    mentions,
    own_nodes,
    receiver,
    scopes,
    target_names,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.text import counted

_READS = ("item", "tolist", "cpu", "numpy")
_TRUTHS = ("any", "all", "isnan", "isinf", "isfinite", "equal", "allclose")
_BATCHES = re.compile(r"loader|mini_?batch|batches|rollout_data|\bget\(.*batch", re.IGNORECASE)
_ENVIRONMENTS = re.compile(r"\b(?:range\((?:self\.)?(?:n|num)_envs\)|.*\benvs\b)", re.IGNORECASE)
# With so many reads each minibatch waits for the device again and again; one read at its end is what most loops have.
MIN_READS = 3
_ONCE = re.compile(r"(?:^|_)(?:load|save|init|print|summary|export|convert|test|describe|repr)", re.IGNORECASE)


@file_rule
def host_read_in_parameter_loop(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A loop over parameters reads a value of each from the device."""
    if not mentions(file, "param", "grad"):
        return
    if is_test(file, tree):
        return
    for scope in scopes(file):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and _ONCE.search(scope.name):
            continue
        lists = parameter_lists(scope)
        for loop in _outer_loops(scope, lists):
            if not _is_certain(loop, lists) and not _uses_tensors(file, loop):
                continue
            reads = list(_reads(loop, _loop_tensors(loop)))
            if reads:
                yield _parameter_finding(file, tree, loop, reads)


def _parameter_finding(file: SourceFile, tree: SourceTree, loop: ast.AST, reads: list[ast.AST]) -> Finding:
    over = text(loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else _generator(loop).iter)
    return source_finding(
        "TT701", file, reads[0], tree,
        title=f"{text(reads[0])} waits for the device once for each item of {over}",
        cause=f"{counted(len(reads), 'read')} in a loop over {over}: each waits until the device has computed the "
              "value, so the number of waits grows with the number of parameters",
        fix="collect the values as tensors, torch.stack them and call .tolist() once after the loop; norms of a list "
            "of gradients take one call of torch.nn.utils.get_total_norm",
    )


def _outer_loops(scope: ast.AST, lists: set[str]) -> Iterator[ast.AST]:
    """The loops over parameters that are not inside another one."""
    inner: set[ast.AST] = set()
    for node in own_nodes(scope):
        iterable = None
        if isinstance(node, (ast.For, ast.AsyncFor)):
            iterable = node.iter
        elif isinstance(node, COMPREHENSIONS):
            iterable = _generator(node).iter
        if iterable is None or node in inner or not is_parameter_iterable(iterable, lists):
            continue
        inner.update(ast.walk(node))
        yield node


def _is_certain(loop: ast.AST, lists: set[str]) -> bool:
    """Whether a loop goes over `.parameters()` or a list of them, and not over something that only has such a name."""
    iterable = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else _generator(loop).iter
    nodes = list(ast.walk(iterable))
    if calls(nodes, "parameters", "named_parameters", "buffers", "named_buffers"):
        return True
    return any(text(node) in lists or isinstance(node, (ast.Subscript, ast.ListComp)) for node in nodes)


def _uses_tensors(file: SourceFile, loop: ast.AST) -> bool:
    """Whether a loop asks its items what only tensors are asked."""
    items = set(target_names(loop if isinstance(loop, (ast.For, ast.AsyncFor)) else _generator(loop)))
    for node in own_nodes(loop):
        if isinstance(node, ast.Attribute) and text(node.value) in items:
            return True
        is_of_torch = isinstance(node, ast.Call) and file.dotted(node.func).startswith("torch.")
        if is_of_torch and any(text(argument) in items for argument in getattr(node, "args", ())):
            return True
    return False


def _generator(node: ast.AST) -> ast.comprehension:
    assert isinstance(node, COMPREHENSIONS)
    return node.generators[0]


def _loop_tensors(loop: ast.AST) -> set[str]:
    """The names in a loop that hold a parameter or a tensor computed from it."""
    tensors = set(target_names(loop if isinstance(loop, (ast.For, ast.AsyncFor)) else _generator(loop)))
    for node in own_nodes(loop):
        if (
            isinstance(node, (ast.Assign, ast.AnnAssign))
            and node.value is not None
            and is_on_device(node.value, tensors)
        ):
            tensors |= set(target_names(node))
    return tensors


def _reads(loop: ast.AST, tensors: set[str]) -> Iterator[ast.AST]:
    """The expressions in a loop that move a value of these tensors to Python."""
    for node in own_nodes(loop):
        if isinstance(node, ast.Call) and (_calls_for_value(node, tensors) or _converts(node, tensors)):
            yield node
        elif isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            yield from _truths(node.test, tensors)
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield from _truths(test, tensors)


def _calls_for_value(call: ast.Call, tensors: set[str]) -> bool:
    """`x.item()` and its like."""
    source = receiver(call)
    return last_name(call) in _READS and source is not None and is_on_device(source, tensors)


def _converts(call: ast.Call, tensors: set[str]) -> bool:
    """`float(x.norm())` and its like."""
    if not isinstance(call.func, ast.Name) or call.func.id not in ("float", "int", "bool") or len(call.args) != 1:
        return False
    return isinstance(call.args[0], (ast.Call, ast.BinOp)) and is_on_device(call.args[0], tensors)


def _truths(test: ast.AST, tensors: set[str]) -> Iterator[ast.AST]:
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and last_name(node) in _TRUTHS and is_on_device(node, tensors):
            yield node
            return


@file_rule
def host_read_in_minibatch_loop(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A training loop reads several values from the device for each minibatch or environment."""
    if not mentions(file, ".item(", ".tolist("):
        return
    if is_test(file, tree) or "torch" not in file.text:
        return
    for function in functions(file):
        for loop in own_nodes(function):
            if not isinstance(loop, (ast.For, ast.AsyncFor)):
                continue
            of = _each(text(loop.iter))
            reads = [call for call in calls(_body_nodes(loop), "item", "tolist") if not call.args]
            if of and len(reads) >= MIN_READS and _trains(function):
                yield source_finding(
                    "TT702", file, reads[0], tree,
                    title=f"{len(reads)} values are read from the device for each {of}",
                    cause=f"each .item() or .tolist() in the loop over {text(loop.iter)} waits for the device",
                    fix=f"keep the values as detached tensors in a list, and after the loop over {text(loop.iter)} "
                        "torch.stack them and call .tolist() once",
                )


def _each(iterable: str) -> str:
    if _BATCHES.search(iterable):
        return "minibatch"
    return "environment" if _ENVIRONMENTS.match(iterable) else ""


def _trains(function: FunctionNode) -> bool:
    return bool(calls(own_nodes(function), "backward", "step"))


def _body_nodes(loop: ast.For | ast.AsyncFor) -> Iterator[ast.AST]:
    """The nodes of a loop's body; a loop inside it over minibatches is reported by itself."""
    for node in own_nodes(loop):
        if isinstance(node, (ast.For, ast.AsyncFor)) and _each(text(node.iter)):
            return
        yield node


@file_rule
def stack_over_parameters(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A function stacks one tensor per parameter, so its graph changes with the model."""
    if not mentions(file, "parameters()"):
        return
    for function in functions(file):
        if is_disabled(function, file, tree) or is_test(file, tree):
            continue
        named = _parameters_by_name(function)
        appended = _appended_tensors(function, named)
        for call in calls(own_nodes(function), "stack", "cat"):
            pieces = call.args[0] if call.args else None
            built = assigned_value(function, pieces.id) if isinstance(pieces, ast.Name) else pieces
            if (isinstance(pieces, ast.Name) and pieces.id in appended) or _is_per_parameter(built, named, file, tree):
                yield source_finding(
                    "TT737", file, call, tree, severity=Severity.P4,
                    title=f"{text(call)[:60]} may recompile: it has one entry for each parameter of the model",
                    cause="the list grows in a loop over parameters, so under torch.compile the size of "
                          "the stack is another one for every model, and each model compiles the function again",
                    fix="decorate the function with @torch.compiler.disable and say in its docstring that it is not "
                        "for compiled code",
                )
                break


def _is_per_parameter(pieces: ast.AST | None, named: set[str], file: SourceFile, tree: SourceTree) -> bool:
    """Whether a list is written as one stack or statistic for each parameter of a model."""
    if not isinstance(pieces, ast.ListComp):
        return False
    iterated = pieces.generators[0].iter
    is_table = last_name(pieces.elt) in ("stack", "cat") or _calls_stacking(pieces.elt, file, tree)
    if last_name(iterated) == "named_parameters":
        return is_table or _makes_tensor(pieces.elt, _loop_tensors(pieces))
    return is_table and text(iterated) in named


def _calls_stacking(node: ast.AST, file: SourceFile, tree: SourceTree) -> bool:
    """Whether an expression calls a function of the project that returns a stack."""
    definition = tree.resolve(node.func, file) if isinstance(node, ast.Call) else None
    if definition is None or not isinstance(definition.node, ast.FunctionDef):
        return False
    returned = [part.value for part in own_nodes(definition.node) if isinstance(part, ast.Return)]
    return any(last_name(value) in ("stack", "cat") for value in returned)


def _parameters_by_name(function: FunctionNode) -> set[str]:
    """The lists of a function that hold its parameters, not their gradients alone."""
    assigns = [node for node in own_nodes(function) if isinstance(node, ast.Assign) and _lists_parameters(node.value)]
    return {name for node in assigns for name in target_names(node)}


def _appended_tensors(function: FunctionNode, named: set[str]) -> set[str]:
    """The lists to which a loop over parameters appends."""
    names = set()
    for loop in own_nodes(function):
        if isinstance(loop, ast.For) and (_lists_parameters(loop.iter) or text(loop.iter) in named):
            for call in calls(own_nodes(loop), "append"):
                source = receiver(call)
                if isinstance(source, ast.Name) and call.args and _makes_tensor(call.args[0], _loop_tensors(loop)):
                    names.add(source.id)
    return names


def _lists_parameters(node: ast.AST) -> bool:
    """Whether an expression walks the parameters of a model itself, not their gradients."""
    if isinstance(node, ast.Call):
        return is_parameter_iterable(node)
    return isinstance(node, ast.ListComp) and is_parameter_iterable(node) and last_name(node.elt) != "grad"


def _makes_tensor(node: ast.AST, tensors: set[str]) -> bool:
    if isinstance(node, ast.Call) and last_name(node) in ("stack", "cat"):
        return True
    return is_on_device(node, tensors)


