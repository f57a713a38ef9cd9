"""Whether compiled code can reach a function by name.

Dynamo inlines the functions that a frame calls, and a list of compiled frames does not show that.
"""

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

from torchtriage.files import read_regular

MAX_FILES = 5000
MAX_BYTES = 4 << 20    # of a file; larger ones are generated
_SKIPPED_FOLDERS = frozenset({"site-packages", "node_modules", "__pycache__", "build", "dist", "venv", "env"})
_DISABLES = frozenset({"torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo"})
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Project:
    """The Python files below a folder, and below `more` files or folders, parsed on first use."""

    def __init__(self, root: Path, more: Sequence[Path] = ()) -> None:
        self.root = root
        self._more = more

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        below = chain.from_iterable(_python_files(path) for path in (self.root, *self._more))
        files = islice(dict.fromkeys(below), MAX_FILES)
        return {path: tree for path in files if (tree := _tree(path))}

    @cached_property
    def mentions(self) -> Mapping[str, set[str]]:
        """Per name, the names that its definitions mention."""
        mentions: dict[str, set[str]] = {}
        for tree in self.trees.values():
            for defined, names in _definitions(tree):
                mentions.setdefault(defined, set()).update(names)
        return mentions

    def definitions(self, file_name: str, name: str) -> list[tuple[Function, ast.Module]]:
        """The functions and classes called `name` in the project's files called `file_name`, with their file."""
        trees = (tree for path, tree in self.trees.items() if path.name == file_name)
        nodes = ((node, tree) for tree in trees for node in ast.walk(tree))
        return [(node, tree) for node, tree in nodes if isinstance(node, Function) and node.name == name]

    def chain(self, start: tuple[Path, str], goal: str) -> list[str] | None:
        """The names that lead from a function to `goal`; empty if none do, None if the function's source is unreadable.

        Only names are followed, so a function that is passed as an argument is not found.
        """
        path, function = start
        tree = self.trees.get(path) or _tree(path)
        own = [names for defined, names in _definitions(tree) if defined == function] if tree else []
        if not own:
            return None
        came_from = dict.fromkeys(sorted(set().union(*own)), function)
        queue = list(came_from)
        for current in queue:       # the queue grows during iteration
            if current == goal:
                return _path_to(current, function, came_from)
            for following in sorted(self.mentions.get(current, ())):
                if following not in came_from and following != function:
                    came_from[following] = current
                    queue.append(following)
        return []


def disabling_decorator(function: Function, tree: ast.Module) -> ast.expr | None:
    """The decorator of a function that is torch.compiler.disable, under the names that its file gives it."""
    meanings = _meanings(tree)
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _dotted(called, meanings) in _DISABLES:
            return decorator
    return None


def _meanings(tree: ast.Module) -> dict[str, str]:
    """The dotted name behind each name that a file imports, or assigns from an imported one."""
    meanings: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                meanings[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                meanings[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            dotted = _dotted(statement.value, meanings)
            if dotted:
                meanings[statement.targets[0].id] = dotted
    return meanings


def _dotted(node: ast.AST, meanings: Mapping[str, str]) -> str:
    """`torch.compiler.disable` for `compiler.disable` after `from torch import compiler`; else empty."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, meanings)
        return f"{owner}.{node.attr}" if owner else ""
    return meanings.get(node.id, "") if isinstance(node, ast.Name) else ""


def _path_to(end: str, start: str, came_from: Mapping[str, str]) -> list[str]:
    chain = [end]
    while chain[0] != start:
        chain.insert(0, came_from[chain[0]])
    return chain


def _definitions(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """(defined name, names it mentions) of every function, class, assignment and import alias."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node.name, _names(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in _names(target):
                    yield name, _names(node.value)
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, {node.name.rpartition(".")[2]}


def _names(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(read_regular(path, MAX_BYTES, follow=True))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _python_files(root: Path) -> Iterable[Path]:
    if root.is_file():
        yield root
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
        yield from (Path(parent, name) for name in names if name.endswith(".py"))
