"""TT718, TT719, TT726, TT728: where gradients, training mode or dtypes are switched."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    LOOPS,
    assigned_value,
    body_of,
    calls,
    decorators,
    functions,
    last_name,
    loops,
    mentions,
    own_nodes,
    receiver,
    target_names,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile

_NO_GRADIENTS = ("no_grad", "inference_mode", "set_grad_enabled", "enable_grad")
_TO_HOST = frozenset({"tolist", "item", "float", "int", "bool", "len", "max", "min"})
_EVALUATION = re.compile(
    r"^_?(?:eval|evaluate|validate|validation|test_(?:epoch|loop|model|step)|test$|run_eval)", re.IGNORECASE,
)


@file_rule
def context_manager_for_decorator(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A whole body is inside `with torch.no_grad()`, which is also a decorator."""
    if not mentions(file, "no_grad", "inference_mode"):
        return
    if is_test(file, tree):
        return
    for function in functions(file):
        body = body_of(function)
        inside = [statement for statement in body if isinstance(statement, ast.With) and _switches_off(statement)]
        if len(inside) != 1 or any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(function)):
            continue
        block = inside[0]
        others = [statement for statement in body if statement is not block]
        if len(block.body) > 1 and all(_is_frame(each) for each in others):
            manager = text(block.items[0].context_expr)
            yield source_finding(
                "TT718", file, block, tree,
                title=f"the whole body of {function.name}() is inside with {manager}",
                cause="the whole function runs without gradients, and a reader learns that only inside of it",
                fix=f"decorate the function with @{manager} and take one level of indentation out",
            )


def _switches_off(statement: ast.With) -> bool:
    if len(statement.items) != 1 or not isinstance(statement.items[0].context_expr, ast.Call):
        return False
    call = statement.items[0].context_expr
    return last_name(call) in ("no_grad", "inference_mode") and not call.args and not call.keywords


def _is_frame(statement: ast.stmt) -> bool:
    """A guard, an unpacked argument, numbers read to the host or the return: nothing that could need gradients."""
    if isinstance(statement, ast.If):
        return all(isinstance(each, (ast.Return, ast.Raise)) for each in statement.body) and not statement.orelse
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return all(last_name(node) in _TO_HOST for node in ast.walk(statement) if isinstance(node, ast.Call))
    return isinstance(statement, (ast.Return, ast.Assert))


@file_rule
def boolean_cast_for_stack(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Flags are cast to float so that they fit into a stack, and nothing says why."""
    if not mentions(file, "any(", "all("):
        return
    if is_test(file, tree):
        return
    for function in functions(file):
        nodes = list(own_nodes(function))
        casts = [node for node in nodes if isinstance(node, ast.Call) and _casts_flag(node, function)]
        if not casts or not calls(nodes, "stack", "tensor", "cat") or _is_explained(file, casts):
            continue
        yield source_finding(
            "TT719", file, casts[0], tree,
            title=f"{text(casts[0])} is a flag as a float, and no comment says why",
            cause="a stack needs one dtype, so the flags become floats to be read together with the numbers; without "
                  "that reason the cast looks like a mistake",
            fix="add a comment: the flags are floats so that one stack, and one read, carries everything",
        )


def _casts_flag(call: ast.Call, function: FunctionNode) -> bool:
    name, inner = last_name(call), receiver(call)
    if name not in ("float", "double", "to", "type", "type_as") or inner is None or not _is_flag(inner, function):
        return False
    return name in ("float", "double") or "float" in text(call) or ".dtype" in text(call)


def _is_flag(node: ast.expr, function: FunctionNode) -> bool:
    """Whether an expression is `x.any()`, `torch.any(x)`, two of them joined, or a name for one."""
    if isinstance(node, ast.Name):
        value = assigned_value(function, node.id)
        return value is not None and not isinstance(value, ast.Name) and _is_flag(value, function)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd)):
        return _is_flag(node.left, function) and _is_flag(node.right, function)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_flag(node.operand, function)
    if not isinstance(node, ast.Call):
        return False
    joins = last_name(node) in ("logical_or", "logical_and", "logical_not")
    is_of_torch = text(receiver(node)) in ("torch", "th")
    is_whole = len(node.args) == (1 if is_of_torch else 0) and not node.keywords     # one flag, and not one per row
    is_one = last_name(node) in ("any", "all") and is_whole
    return is_one or (joins and any(_is_flag(each, function) for each in node.args))


def _is_explained(file: SourceFile, casts: list[ast.Call]) -> bool:
    first, last = min(call.lineno for call in casts), max(call.end_lineno or call.lineno for call in casts)
    near = [file.line(number) for number in range(first - 4, last + 1)]
    return any("#" in line and re.search(r"bool|float|flag|dtype|stack|cast", line.partition("#")[2]) for line in near)


@file_rule
def eval_without_train(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A training loop switches the model to evaluation and never back."""
    if not mentions(file, ".eval("):
        return
    if is_test(file, tree):
        return
    evaluators = {f.name: f for f in functions(file) if _switches_to_eval(f) is not None and not _switches_back(f)}
    restorers = {function.name for function in functions(file) if _switches_back(function)}
    for function in functions(file):
        for loop in loops(function):
            nodes = list(own_nodes(loop))
            if not calls(nodes, "backward") or _switches_back(loop) or calls(nodes, *restorers):
                continue
            switch = _switches_to_eval(loop)
            if switch is not None and (
                _is_meant(file, switch, calls(nodes, "backward")[0]) or _is_made_in(loop, switch)
            ):
                continue
            helper = next((c for c in nodes if isinstance(c, ast.Call) and last_name(c) in evaluators), None)
            if switch is not None or helper is not None:
                yield _eval_finding(file, tree, switch or helper or function)
            break


def _is_made_in(loop: ast.AST, switch: ast.Call) -> bool:
    """Whether each pass makes a new module, in training mode."""
    return any(text(receiver(switch)) in target_names(node) for node in own_nodes(loop) if isinstance(node, ast.Assign))


def _is_meant(file: SourceFile, switch: ast.Call, backward: ast.Call) -> bool:
    """Whether each pass switches to evaluation just before its own backward(): a frozen part, not an evaluation."""
    own, of_backward = (
        next((parent for parent in file.ancestors(node) if isinstance(parent, (*LOOPS, ast.If))), None)
        for node in (switch, backward)
    )
    return own is of_backward and switch.lineno < backward.lineno


def _eval_finding(file: SourceFile, tree: SourceTree, node: ast.AST) -> Finding:
    return source_finding(
        "TT726", file, node, tree,
        title=f"training continues in evaluation mode after {text(node)}",
        cause="the model is switched to evaluation inside the training loop, and nothing in the loop calls .train(): "
              "from then on dropout is off and batch norm no longer learns its statistics",
        fix="call .train() at the start of each epoch, or at the end of the evaluation",
    )


def _switches_to_eval(scope: ast.AST) -> ast.Call | None:
    found = [call for call in calls(own_nodes(scope), "eval") if receiver(call) is not None and not call.args]
    return found[0] if found else None


def _switches_back(scope: ast.AST) -> bool:
    return any(receiver(call) is not None for call in calls(own_nodes(scope), "train", "set_training_mode"))


@file_rule
def evaluation_with_gradients(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A model is evaluated while autograd records."""
    if not mentions(file, ".eval("):
        return
    if is_test(file, tree):
        return
    for function in functions(file):
        if not _EVALUATION.match(function.name) or set(_NO_GRADIENTS) & decorators(function):
            continue
        switch = _switches_to_eval(function)
        nodes = list(own_nodes(function))
        if switch is None or calls(nodes, "backward", "grad", *_NO_GRADIENTS) or _callers_switch_off(file, function):
            continue
        model = text(receiver(switch))
        used = next((c for c in nodes if isinstance(c, ast.Call) and text(c.func) == model), None)
        if used is not None:
            yield source_finding(
                "TT728", file, used, tree,
                title=f"{function.name}() records gradients that nothing uses",
                cause=f"{text(used)} runs without torch.no_grad(): eval() changes layers, not autograd, so the "
                      "graph and its activations are kept for nothing",
                fix="decorate the function with @torch.inference_mode(), or @torch.no_grad() if its results are "
                    "trained on",
            )


def _callers_switch_off(file: SourceFile, function: FunctionNode) -> bool:
    """Whether a call of the function in its file is inside a block without gradients."""
    for call in file.of_type(ast.Call):
        if last_name(call) == function.name:
            for parent in file.ancestors(call):
                if (
                    isinstance(parent, ast.With)
                    and any(last_name(i.context_expr) in _NO_GRADIENTS for i in parent.items)
                ):
                    return True
    return False
