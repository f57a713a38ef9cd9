"""TT714, TT715: statistics that are computed and dropped, or computed by two copies of the same code."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import body_of, calls, functions, names_in, own_nodes, target_names, text
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.text import counted

MIN_SHARED = 4          # statements that two functions share before they count as copies
MIN_SHARED_SHARE = 0.5  # of the statements of the shorter one
_GRADIENT_WORDS = (".grad", "grads", "_foreach_norm", "gradients")


@file_rule
def discarded_work(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Tensor statistics are computed before a flag decides that they are not returned."""
    if is_test(file.path) or "torch" not in file.text:
        return
    for function in functions(file):
        flags = {a.arg for a in [*function.args.args, *function.args.kwonlyargs] if a.arg not in ("self", "cls")}
        body = body_of(function)
        for position, statement in enumerate(body):
            flag = _flag_of(statement, flags)
            if flag is None or not isinstance(statement, ast.If):
                continue
            rest: list[ast.stmt] = statement.orelse or body[position + 1:]
            long, short = (rest, statement.body) if isinstance(statement.test, ast.UnaryOp) else (statement.body, rest)
            dropped = _dropped(body[:position], long, short)
            if dropped and _returns(long) and _returns(short):
                yield _dropped_finding(file, tree, function, statement, dropped)
            break


def _dropped_finding(
    file: SourceFile, tree: SourceTree, function: FunctionNode, statement: ast.If, dropped: list[str],
) -> Finding:
    listed = ", ".join(dropped[:6])
    return source_finding(
        "TT714", file, statement, tree, reason=function.name,
        title=f"{function.name}() computes {counted(len(dropped), 'value')} that one of its two results drops",
        cause=f"{listed} are computed before {text(statement.test)} is tested, and the other branch does not use them",
        fix="test the flag first and compute them only in the branch that returns them",
    )


def _flag_of(statement: ast.stmt, flags: set[str]) -> str | None:
    if not isinstance(statement, ast.If):
        return None
    test = statement.test.operand if isinstance(statement.test, ast.UnaryOp) else statement.test
    return test.id if isinstance(test, ast.Name) and test.id in flags else None


def _returns(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Return) and block[-1].value is not None


def _dropped(before: list[ast.stmt], long: list[ast.stmt], short: list[ast.stmt]) -> list[str]:
    """The names computed by calls before the branch that only its long side needs."""
    needs: dict[str, set[str]] = {}
    computed: list[str] = []
    for statement in before:
        for node in [statement, *own_nodes(statement)]:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
                for name in target_names(node):
                    needs.setdefault(name, set()).update(names_in(node.value))
                    if any(isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
                           for part in ast.walk(node.value)):
                        computed.append(name)
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
    if is_test(file.path):
        return
    collectors = [f for f in functions(file) if any(word in _text_of(file, f) for word in _GRADIENT_WORDS)]
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
                    cause=f"{counted(len(shared), 'statement')} of the two functions are the same apart from names, so a "
                          "correction of one is missing in the other",
                    fix=f"call {file.qualname(earlier)}() from {later.name}(), or move the shared part into one function",
                )
                break


def _text_of(file: SourceFile, node: FunctionNode) -> str:
    return "\n".join(file.lines[node.lineno - 1:node.end_lineno])


def _shapes(function: FunctionNode) -> frozenset[str]:
    """The statements of a function that call something, with every local name replaced."""
    found = set()
    for statement in own_nodes(function):
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)):
            if statement.value is not None and calls(ast.walk(statement), *_called(statement)):
                value = ast.parse(text(statement.value), mode="eval")
                for node in ast.walk(value):
                    if isinstance(node, ast.Name):
                        node.id = "_"
                found.add(ast.dump(value))
    return frozenset(found)


def _called(statement: ast.stmt) -> list[str]:
    return [node.func.attr for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
