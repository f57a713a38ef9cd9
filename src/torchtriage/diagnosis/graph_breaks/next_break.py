"""The next break of a function that was left to eager: Dynamo traced it only up to the first one."""

import ast
from collections.abc import Iterator

from torchtriage.diagnosis.statement import Statement, called_name, module_at, own_nodes, statement_at
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process

# A call that breaks wherever it is, once one has broken: (rule of the break, its id at torch) -> its name.
_SAME_CALL = {("TT101", "GB0059"): "print", ("TT104", "GB0124"): "item"}
# Behind one of these it is not known what runs.
_FORKS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match, ast.Return, ast.Raise,
    ast.Break, ast.Continue, ast.Assert,
)
_MAY_NOT_RUN = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def next_break(process: Process, place: StackEntry, code: str, gb_id: str | None) -> int | None:
    """The line of the next call that surely breaks like the one at this place; None if the source shows none.

    Only statements that run whenever the place does are looked at: no other branch, and nothing behind a return.
    """
    name = _SAME_CALL.get((code, gb_id or ""), "")
    statement = statement_at(process, place.path, place.line) if name else None
    if statement is None or statement.function is None:
        return None
    _, first_line = module_at(process, place.path, place.line)
    for node in _afterwards(statement):
        if _calls(node, name):
            line = node.lineno + first_line - 1
            is_known = any((event.path, event.line) == (place.path, line) for event in process.of(GraphBreak))
            return None if is_known else line
        if isinstance(node, _FORKS):
            return None
    return None


def _afterwards(statement: Statement) -> Iterator[ast.stmt]:
    """The statements behind a statement, in its block and then in the blocks around it, within its function."""
    child: ast.stmt = statement.node
    for parent in reversed(statement.parents):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, [])
            if child in block:
                yield from block[block.index(child) + 1:]
        if parent is statement.function or any(isinstance(part, ast.Return) for part in ast.walk(parent)):
            return
        child = parent


def _calls(node: ast.stmt, name: str) -> bool:
    """Whether the statement, without its blocks, calls print(...) or x.item() each time it runs."""
    parts = list(own_nodes(node))
    if isinstance(node, ast.Assert) or any(isinstance(part, _MAY_NOT_RUN) for part in parts):
        return False
    calls = [part for part in parts if isinstance(part, ast.Call) and called_name(part) == name]
    is_method = name != "print"
    return any(isinstance(call.func, ast.Attribute) == is_method and not (is_method and call.args) for call in calls)
