"""The statement at a place, parsed from the source that the recording kept."""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torchtriage.recording.recording import Process

MAX_CODE = 110      # characters of code that fit into a sentence

Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITION = re.compile(r"\s*(?:@|def |async def )")
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a function, with the statements around it, the outermost first, and the one that follows."""

    node: ast.stmt
    parents: tuple[ast.stmt, ...] = ()
    following: ast.stmt | None = None

    @property
    def function(self) -> Function | None:
        """The innermost function that holds the statement; None at module level."""
        for parent in reversed(self.parents):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return parent
        return None

    @property
    def depth(self) -> int:
        """The number of parents up to the innermost function, that included."""
        function = self.function
        return 0 if function is None else self.parents.index(function) + 1

    @property
    def loop(self) -> ast.stmt | None:
        """The innermost loop around the statement, within its function."""
        for parent in reversed(self.parents):
            if isinstance(parent, _LOOPS):
                return parent
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return None
        return None

    def calls(self, *names: str) -> list[ast.Call]:
        """Calls of a function or method with one of these names, in the statement without its body."""
        return [node for node in own_nodes(self.node) if isinstance(node, ast.Call) and called_name(node) in names]


def statement_at(process: Process, path: str, line: int) -> Statement | None:
    """The innermost statement that covers a line; None if the recording has no source that can be parsed."""
    source = process.sources.get((path, line))
    if source is None:
        return None
    tree, first = module_at(process, path, line)
    statement = _innermost(tree.body, line - first + 1, ()) if tree is not None else None
    if statement is None:        # the lines around the place are cut out of a block: take the line alone
        alone = source.line(line).strip()
        tree = _parsed(f"{alone}\n") or _parsed(f"{alone}\n    pass")
        statement = _innermost(tree.body, 1, ()) if tree is not None else None
    return statement


def module_at(process: Process, path: str, line: int) -> tuple[ast.Module | None, int]:
    """The recorded source around a place, parsed, and the number of its first line; None if it cannot be parsed."""
    source = process.sources.get((path, line))
    if source is None:
        return None, 0
    place = line - source.first_line
    starts = [0, *(i for i, text in enumerate(source.lines[:place + 1]) if _DEFINITION.match(text)), place]
    for start in dict.fromkeys(starts):     # a window may cut a block at both ends: leave lines out until it parses
        for end in range(len(source.lines), place, -1):
            tree = _parsed("\n".join(source.lines[start:end]))
            if tree is not None:
                return tree, source.first_line + start
    return None, 0


def recorded_statements(process: Process, path: str) -> Iterator[tuple[int, ast.stmt]]:
    """Every statement of a file that the recording shows, each once, with the line at which it begins."""
    seen: set[int] = set()
    for own_path, line in sorted(process.sources):
        tree, first = module_at(process, path, line) if own_path == path else (None, 0)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.stmt) and node.lineno + first - 1 not in seen:
                seen.add(node.lineno + first - 1)
                yield node.lineno + first - 1, node


def _parsed(text: str) -> ast.Module | None:
    text = textwrap.dedent(text)
    is_indented = bool(re.match(r"\s*\n?[ \t]", text))
    candidate = f"if 1:\n{text}" if is_indented else text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # the user's code may have an invalid escape sequence
            tree = ast.parse(candidate)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if is_indented:
        ast.increment_lineno(tree, -1)
    return tree


def _innermost(block: list[ast.stmt], line: int, parents: tuple[ast.stmt, ...]) -> Statement | None:
    for position, node in enumerate(block):
        if not _first_line(node) <= line <= (node.end_lineno or node.lineno):
            continue
        for inner in _blocks(node):
            statement = _innermost(inner, line, (*parents, node))
            if statement is not None:
                return statement
        following = block[position + 1] if position + 1 < len(block) else None
        return Statement(node=node, parents=parents, following=following)
    return None


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements inside a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def own_nodes(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement; of a compound one those of its head, not of its blocks."""
    blocks = [statement for block in _blocks(node) for statement in block]
    waiting = [child for child in ast.iter_child_nodes(node) if child not in blocks]
    while waiting:
        current = waiting.pop(0)
        yield current
        waiting = [*ast.iter_child_nodes(current), *waiting]


def called_name(call: ast.Call) -> str:
    """`item` of `x.sum().item()`, `float` of `float(x)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def code(node: ast.AST | str) -> str:
    """The source of an expression on one line."""
    return node if isinstance(node, str) else " ".join(ast.unparse(node).split())


def fits(*texts: str) -> bool:
    """Whether this code can be quoted in full."""
    return sum(map(len, texts)) <= MAX_CODE
