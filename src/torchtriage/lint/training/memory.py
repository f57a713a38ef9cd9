"""TT703, TT727: memory that grows with the parameters or with the steps."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.gradients import is_parameter_iterable, parameter_lists
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    calls,
    functions,
    last_name,
    loops,
    mentions,
    names_in,
    own_nodes,
    receiver,
    target_names,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile

_FLAT = ("view", "flatten", "reshape", "ravel")
_VECTOR = re.compile(r"vector|flat", re.IGNORECASE)     # a function of this name exists to make the vector
_WITHOUT_GRAPH = ("item", "detach", "float", "tolist", "numpy")


@file_rule
def concatenated_gradients(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """All gradients or parameters are copied into one temporary tensor."""
    if not mentions(file, "grad", "param"):
        return
    for function in functions(file):
        if is_test(file, tree):
            continue
        outlives = _outlives(function)
        makes_vector = bool(_VECTOR.search(function.name))
        lists = parameter_lists(function)
        for call in calls(own_nodes(function), "cat", "concat", "concatenate", "hstack", "parameters_to_vector"):
            parent = file.parent(call)
            while isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and call not in parent.args):
                parent = file.parent(parent)    # `torch.cat(...).detach()`
            names = {text(target) for target in parent.targets} if isinstance(parent, ast.Assign) else set()
            is_kept = bool(names & outlives) or any("." in name for name in names)
            is_result = isinstance(parent, ast.Return) or is_kept or (makes_vector and not names)
            if _copies_the_model(call, function, lists) and not is_result:
                yield source_finding(
                    "TT703", file, call, tree,
                    title=f"{text(call)[:70]} copies the whole model into one temporary tensor",
                    cause="the copy has as many elements as all parameters together: 400 MB for 100 million of "
                          "float32, on top of the gradients themselves",
                    fix="compute the statistic of each tensor and combine the results: torch.nn.utils.get_total_norm "
                        "for a norm, a stack of per-tensor sums, minima and maxima for the rest",
                )


def _outlives(function: FunctionNode) -> set[str]:
    """The names whose values are returned or become a parameter, so that they are no temporary tensors."""
    found: list[ast.expr] = []
    for node in own_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None:
            found += node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        elif isinstance(node, ast.Call) and last_name(node) in ("__new__", "Parameter"):
            found += node.args
    return {text(node) for node in found}


def _copies_the_model(call: ast.Call, function: FunctionNode, lists: set[str]) -> bool:
    if not call.args:
        return False
    pieces = call.args[0]
    if last_name(call) == "parameters_to_vector":
        return is_parameter_iterable(pieces, lists)
    if isinstance(pieces, (ast.ListComp, ast.GeneratorExp)):
        return is_parameter_iterable(pieces.generators[0].iter, lists) and _is_flat(pieces.elt)
    if not isinstance(pieces, ast.Name):
        return False
    for node in own_nodes(function):
        if (
            isinstance(node, ast.Assign)
            and pieces.id in target_names(node)
            and isinstance(node.value, ast.ListComp)
            and is_parameter_iterable(node.value.generators[0].iter, lists)
            and _is_flat(node.value.elt)
        ):
            return True
        if isinstance(node, ast.For) and is_parameter_iterable(node.iter, lists):
            for append in calls(own_nodes(node), "append"):
                if text(receiver(append)) == pieces.id and append.args and _is_flat(append.args[0]):
                    return True
    return False


def _is_flat(node: ast.AST) -> bool:
    return any(last_name(call) in _FLAT for call in ast.walk(node) if isinstance(call, ast.Call))


@file_rule
def loss_kept_with_graph(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A training loop adds up or collects losses together with their graphs."""
    if not mentions(file, "backward"):
        return
    for function in functions(file):
        if is_test(file, tree):
            continue
        backward = {text(receiver(call)) for call in calls(own_nodes(function), "backward")}
        for loop in loops(function):
            losses = {text(receiver(call)) for call in calls(own_nodes(loop), "backward")} & _made_in(loop)
            for statement, kept in _kept(loop):
                loss = names_in(kept) & losses
                target = text(statement.target) if isinstance(statement, ast.AugAssign) else ""
                if loss and target not in backward and _keeps_graph(kept) and not _is_freed(loop, statement, loss):
                    yield _kept_finding(file, tree, statement, min(loss))
            if losses:
                break       # the outer loop contains the inner ones


def _kept_finding(file: SourceFile, tree: SourceTree, statement: ast.AST, loss: str) -> Finding:
    return source_finding(
        "TT727", file, statement, tree,
        title=f"{text(statement)} keeps the graph of every step",
        cause=f"{loss} is kept without detach(), so its autograd graph stays alive until the sum is dropped and memory "
              "grows with each step",
        fix=f"keep {loss}.detach() and read the sum after the loop",
    )


def _is_freed(loop: ast.AST, kept: ast.AST, losses: set[str]) -> bool:
    """Whether the loop gives the name a value without a graph before it is kept: `loss = loss.item()`."""
    for node in own_nodes(loop):
        if isinstance(node, ast.Assign) and losses & set(target_names(node)) & names_in(node.value):
            is_before = node.lineno < getattr(kept, "lineno", 0)
            if is_before and (last_name(node.value) in _WITHOUT_GRAPH or getattr(node.value, "attr", "") == "data"):
                return True
    return False


def _made_in(loop: ast.AST) -> set[str]:
    assignments = [node for node in own_nodes(loop) if isinstance(node, (ast.Assign, ast.AnnAssign))]
    return {name for node in assignments for name in target_names(node)}


def _kept(loop: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in own_nodes(loop):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield node, node.value
        elif isinstance(node, ast.Call) and last_name(node) == "append" and node.args:
            yield node, node.args[0]


def _keeps_graph(node: ast.expr) -> bool:
    """Whether an expression is a loss, possibly scaled, that nothing detaches."""
    if isinstance(node, ast.BinOp):
        return _keeps_graph(node.left) or _keeps_graph(node.right)
    return isinstance(node, ast.Name)
