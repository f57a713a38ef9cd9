"""TT714, TT715: statistics that are computed for nothing: dropped, or computed twice."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    body_of,
    calls,
    functions,
    mentions,
    names_in,
    own_nodes,
    parameter_defaults,
    target_names,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.text import counted

MIN_SHARED = 4          # expressions that two functions share before they count as copies
MIN_SHARED_SHARE = 0.5  # of the expressions of the shorter one
_STATISTICS = (
    "sum", "mean", "std", "var", "norm", "vector_norm", "get_total_norm", "min", "max", "amin", "amax", "aminmax",
    "median", "quantile", "histc", "isnan", "isinf", "isfinite", "count_nonzero", "any", "all", "cat", "tolist", "item",
    "unique",
)
_GRADIENTS = re.compile(r"\.grad\b|\bgrads\b|\bgradients\b|_foreach_norm")


@file_rule
def discarded_work(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Tensor statistics are computed before a flag decides that they are not returned."""
    if is_test(file, tree) or "torch" not in file.text:
        return
    for function in functions(file):
        flags = _switches(function)
        body = body_of(function)
        for position, statement in enumerate(body):
            chosen = _chosen_by_flag(statement, flags, body[position + 1:])
            if chosen is None:
                continue
            test, one, other = chosen
            dropped = _dropped(body[:position], one, other) or _dropped(body[:position], other, one)
            if dropped:
                yield _dropped_finding(file, tree, function, test, dropped)
            break


def _dropped_finding(
    file: SourceFile, tree: SourceTree, function: FunctionNode, test: ast.expr, dropped: list[str],
) -> Finding:
    listed = ", ".join(dropped[:6])
    return source_finding(
        "TT714", file, test, tree, reason=function.name,
        title=f"{function.name}() computes {counted(len(dropped), 'value')} that one of its two results drops",
        cause=f"{listed} are computed before {text(test)} is tested, and the other branch does not use them",
        fix="test the flag first and compute them only in the branch that returns them",
    )


def _switches(function: FunctionNode) -> set[str]:
    """The parameters that are True or False, by their default or annotation."""
    defaults = parameter_defaults(function)
    return {
        argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]
        if text(argument.annotation) == "bool" or text(defaults.get(argument.arg)) in ("True", "False")
    }


def _chosen_by_flag(
    statement: ast.stmt, flags: set[str], rest: list[ast.stmt],
) -> tuple[ast.expr, list[ast.stmt], list[ast.stmt]] | None:
    """The test of a parameter, and the two blocks that return, one of which it chooses."""
    if isinstance(statement, ast.If) and _is_flag(statement.test, flags):
        other = statement.orelse or rest
        return (statement.test, statement.body, other) if _returns(statement.body) and _returns(other) else None
    value = statement.value if isinstance(statement, ast.Return) else None
    if isinstance(value, ast.IfExp) and _is_flag(value.test, flags):
        return value.test, [ast.Expr(value.body)], [ast.Expr(value.orelse)]
    return None


def _is_flag(test: ast.expr, flags: set[str]) -> bool:
    test = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(test, ast.Name) and test.id in flags


def _returns(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Return) and block[-1].value is not None


def _dropped(before: list[ast.stmt], long: list[ast.stmt], short: list[ast.stmt]) -> list[str]:
    """The statistics computed before the branch that only its long side needs."""
    needs: dict[str, set[str]] = {}
    computed: list[str] = []
    stacks: dict[str, list[ast.expr]] = {}
    for statement in before:
        for node in [statement, *own_nodes(statement)]:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
                names = target_names(node)
                parts = _parts(node.value, stacks)
                for place, name in enumerate(names):
                    source = parts[place] if len(parts) == len(names) > 1 else node.value
                    needs.setdefault(name, set()).update(names_in(source))
                if len(names) == 1 and parts:
                    stacks[names[0]] = parts
                if len(names) == 1 and calls(ast.walk(node.value), *_STATISTICS):
                    computed += names
    for_long = _reached({name for part in long for name in names_in(part)}, needs)
    for_short = _reached({name for part in short for name in names_in(part)} | _conditions(before), needs)
    return [name for name in dict.fromkeys(computed) if name in for_long and name not in for_short]


def _conditions(before: list[ast.stmt]) -> set[str]:
    """The names that decide or do something before the branch, whatever it returns."""
    found: set[str] = set()
    for statement in before:
        for node in [statement, *own_nodes(statement)]:
            if isinstance(node, (ast.If, ast.While)):
                found |= names_in(node.test)
            elif isinstance(node, ast.For):
                found |= names_in(node.iter)
            elif isinstance(node, (ast.Expr, ast.Return)) and node.value is not None:
                found |= names_in(node.value)
    return found


def _parts(value: ast.expr, stacks: dict[str, list[ast.expr]]) -> list[ast.expr]:
    """The values that `torch.stack([a, b])`, or an earlier stack that is unpacked or read, consists of, in order."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in ("tolist", "unbind", "item", "cpu"):
            return _parts(value.func.value, stacks)
        if value.func.attr == "stack" and value.args and isinstance(value.args[0], (ast.List, ast.Tuple)):
            return value.args[0].elts
    return stacks.get(value.id, []) if isinstance(value, ast.Name) else []


def _reached(start: set[str], needs: dict[str, set[str]]) -> set[str]:
    reached, waiting = set(start), list(start)
    while waiting:
        for name in needs.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


@file_rule
def duplicated_collection(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Two functions of a file collect gradient statistics with the same statements."""
    if not mentions(file, "grad"):
        return
    if is_test(file, tree):
        return
    collectors = [f for f in functions(file) if _GRADIENTS.search(_text_of(file, f))]
    shapes = {function: _shapes(function) for function in collectors}
    collectors.sort(key=lambda function: function.lineno)
    for position, later in enumerate(collectors):
        for earlier in collectors[:position]:
            if later in earlier.body or file.enclosing_function(later) is earlier:
                continue
            shared = shapes[later] & shapes[earlier]
            smaller = min(len(shapes[later]), len(shapes[earlier]))
            if len(shared) >= MIN_SHARED and len(shared) >= MIN_SHARED_SHARE * smaller:
                yield source_finding(
                    "TT715", file, later, tree, reason=file.qualname(earlier),
                    title=f"{later.name}() repeats {file.qualname(earlier)}()",
                    cause=f"{counted(len(shared), 'expression')} of the two functions are the same apart from "
                          "names, so a correction of one is missing in the other",
                    fix=f"call {file.qualname(earlier)}() from {later.name}(), or move the shared part into one "
                        f"function",
                )
                break


def _text_of(file: SourceFile, node: FunctionNode) -> str:
    return "\n".join(file.lines[node.lineno - 1:node.end_lineno])


def _shapes(function: FunctionNode) -> frozenset[str]:
    """The calls and comprehensions of a function that use methods, with every local name and own attribute replaced."""
    found = set()
    for node in own_nodes(function):
        if isinstance(node, (ast.Call, ast.ListComp, ast.GeneratorExp)) and _uses_methods(node):
            found.add(ast.dump(_Anonymous().visit(ast.parse(text(node), mode="eval"))))
    return frozenset(found)


def _uses_methods(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load) for part in ast.walk(node))


class _Anonymous(ast.NodeTransformer):
    """Replaces names, and attributes of self, by one name."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(id="_", ctx=node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name(id="_", ctx=node.ctx)
        self.generic_visit(node)
        return node
