"""A parsed source file: its text, its tree, its imports."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from torchtriage.findings.selection import Suppression, suppression_in

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
Node = TypeVar("Node", bound=ast.AST)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file. `path` is absolute; `module` is its dotted name as far as its packages reach."""

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def module(self) -> str:
        return module_name(Path(self.path))

    @cached_property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def line(self, number: int) -> str:
        """The text of a line, counted from 1; empty beyond the end."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def segment(self, node: ast.AST) -> str:
        """The source of a node in one line, as it is written if it fits on one."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
        if not first or first != last:
            return " ".join(ast.unparse(node).split())
        data = self.line(first).encode()        # columns count bytes
        return data[getattr(node, "col_offset", 0): getattr(node, "end_col_offset", None)].decode(errors="replace")

    @cached_property
    def _index(self) -> tuple[dict[type, list[ast.AST]], dict[ast.AST, ast.AST]]:
        by_type: dict[type, list[ast.AST]] = {}
        parents: dict[ast.AST, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree]
        for node in waiting:  # grows while it is read, so parents precede their children
            by_type.setdefault(type(node), []).append(node)
            for child in ast.iter_child_nodes(node):
                parents[child] = node
                waiting.append(child)
        return by_type, parents

    def of_type(self, *types: type[Node]) -> Iterator[Node]:
        """Every node of these types, outer ones before inner ones; the tree is walked once for all rules."""
        for kind in types:
            yield from self._index[0].get(kind, ())  # type: ignore[misc]  # indexed by this very type

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._index[1].get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the nearest first."""
        parent = self.parent(node)
        while parent is not None:
            yield parent
            parent = self.parent(parent)

    def enclosing_function(self, node: ast.AST) -> FunctionNode | ast.Lambda | None:
        """The nearest function around a node; None at module or class level."""
        for parent in self.ancestors(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return parent
            if isinstance(parent, ast.ClassDef):
                return None
        return None

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The nearest class around a node, through its methods."""
        return next((parent for parent in self.ancestors(node) if isinstance(parent, ast.ClassDef)), None)

    def qualname(self, node: ast.AST) -> str:
        """`Net.forward` for a place in this method or the method itself; `<module>` outside of all functions."""
        chain = [node, *self.ancestors(node)]
        names = [_scope_name(scope) for scope in chain if isinstance(scope, _SCOPES)]
        return ".".join(reversed(names)) or "<module>"

    @cached_property
    def starred_modules(self) -> list[str]:
        """The modules of `from module import *`."""
        if "import *" not in self.text:
            return []
        nodes = [node for node in self.of_type(ast.ImportFrom) if node.names[0].name == "*"]
        return [self._imported_module(node) for node in nodes]

    @cached_property
    def imports(self) -> dict[str, str]:
        """The dotted name behind each imported name of the file: `F` is `torch.nn.functional`."""
        names: dict[str, str] = {}
        for node in self.of_type(ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        for node_from in self.of_type(ast.ImportFrom):
            base = self._imported_module(node_from)
            for alias in node_from.names:
                names[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name
        return names

    def _imported_module(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module.split(".") if self.is_package else self.module.split(".")[:-1]
        package = package[: len(package) - node.level + 1]
        return ".".join([*package, node.module] if node.module else package)

    def dotted(self, node: ast.AST | None) -> str:
        """`torch.nn.Linear` for `nn.Linear`: an imported name with its attributes; empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return ""
        return ".".join([self.imports[node.id], *reversed(parts)])

    @cached_property
    def suppressions(self) -> Mapping[int, Suppression]:
        """The suppression comments by line; a string that looks like one does not count."""
        if "torchtriage:" not in self.text:
            return {}
        found: dict[int, Suppression] = {}
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            comment = suppression_in(token.string) if token.type == tokenize.COMMENT else None
            if comment is not None:
                found[token.start[0]] = comment
        return found


def _scope_name(scope: ScopeNode) -> str:
    return "<lambda>" if isinstance(scope, ast.Lambda) else scope.name


def module_name(path: Path) -> str:
    """The dotted name of a file: as many folders above it as are packages."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or path.parent.name


def parse(path: str, data: bytes) -> SourceFile:
    """The parsed file; SyntaxError or ValueError if it is not Python that this interpreter reads."""
    tree = ast.parse(data, filename=path)
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    return SourceFile(path=path, text=data.decode(encoding, "replace"), tree=tree)
