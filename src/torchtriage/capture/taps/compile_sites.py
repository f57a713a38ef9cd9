"""The torch.compile calls in the source of the main script, recorded if the process makes none of them."""

import ast
import linecache
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torchtriage.capture.torch_private.base import is_torch_file, module
from torchtriage.recording.events import CompileSite
from torchtriage.recording.sources import is_installed

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
MAX_LINES = 20_000      # of a script that is parsed at the end of its process; a longer one is generated
MAX_SITES = 20
_TORCH_COMPILE_OPTIONS = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})
# Methods of a module; an object on which the script calls one of them, and compile(), is a module.
_MODULE_METHODS = frozenset({"parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad"})


class MainScript:
    """The main script of this process, found while it runs: at the end, Python has removed its name."""

    def __init__(self) -> None:
        path: str = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        self.path = "" if is_installed(path) or path.startswith(_PACKAGE) else path
        self._changed = _change_time(self.path)

    def compile_sites(self, **columns: Any) -> list[CompileSite]:
        """Its torch.compile calls; none if it has been edited since, or has replaced torch.compile."""
        if not self.path or _change_time(self.path) != self._changed or not _is_original():
            return []
        sites = sorted(set(_sites_in(linecache.getlines(self.path))))
        return [CompileSite(path=self.path, line=line, function=name, **columns) for line, name in sites[:MAX_SITES]]


def _change_time(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime if path else None
    except OSError:
        return None


def _sites_in(lines: list[str]) -> Iterable[tuple[int, str]]:
    if len(lines) > MAX_LINES or not any("compile" in line for line in lines):
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return _sites(tree)


def _is_original() -> bool:
    code = getattr(getattr(module("torch"), "compile", None), "__code__", None)
    return code is not None and is_torch_file(code.co_filename)


def _sites(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, function) of each use of torch.compile as a function or a decorator, and of each compile() of a module."""
    torch_names, function_names = _imported(tree)
    modules = _modules(tree)

    def is_torch_compile(node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == "compile" and isinstance(node.value, ast.Name) and node.value.id in torch_names
        return isinstance(node, ast.Name) and node.id in function_names

    def is_module_compile(call: ast.Call) -> bool:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "compile" or call.args:
            return False
        options = {keyword.arg for keyword in call.keywords}
        is_module = ast.unparse(call.func.value) in modules or bool(options)
        return is_module and options <= _TORCH_COMPILE_OPTIONS

    waiting: list[tuple[ast.AST, str]] = [(tree, "<module>")]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.Call) and (is_torch_compile(node.func) or is_module_compile(node)):
            yield node.lineno, function
        decorators = getattr(node, "decorator_list", ())
        for decorator in decorators:
            if is_torch_compile(decorator):
                yield decorator.lineno, function
        inner = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        for child in ast.iter_child_nodes(node):
            waiting.append((child, function if child in decorators else inner))


def _imported(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The names under which the script imports torch, and torch.compile itself."""
    torch_names, function_names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            torch_names |= {name.asname or "torch" for name in node.names if name.name == "torch"}
            torch_names |= {"torch" for name in node.names if name.name.startswith("torch.") and not name.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch" and not node.level:
            function_names |= {name.asname or name.name for name in node.names if name.name == "compile"}
    return torch_names, function_names


def _modules(tree: ast.Module) -> set[str]:
    """Expressions of the script on which it calls a method that only a module has."""
    owners = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MODULE_METHODS:
            owners.add(ast.unparse(node.func.value))
    return owners
