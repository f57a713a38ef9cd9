"""The linted files together: modules, imports across them."""

import ast
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchtriage.lint.source import SourceFile, parse

# Folders that hold no source of the project.
SKIPPED_FOLDERS = frozenset(
    {
        "__pycache__",
        "node_modules",
        "site-packages",
        "build",
        "dist",
        "venv",
        "env",
        ".venv",
        ".git",
        ".hg",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".eggs",
        ".torchtriage_cache",
    }
)
MAX_REEXPORTS = 8  # a chain of `from .x import y` that is longer is a cycle
MAX_BYTES = 4 << 20  # larger files are generated data


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class at the top of a file, or an assigned name with the expression that it is bound to."""

    file: SourceFile
    node: ast.AST


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that cannot be linted, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, eq=False)
class SourceTree:
    """All files of one call of lint. `roots` are the folders below which paths are written in fingerprints."""

    files: Sequence[SourceFile]
    roots: tuple[str, ...] = ()
    unread: Sequence[UnreadFile] = ()

    @cached_property
    def _by_suffix(self) -> Mapping[str, list[SourceFile]]:
        """The files by every dotted ending of their path: `a/kit/timing.py` is `timing` and `kit.timing`."""
        index: dict[str, list[SourceFile]] = {}
        for file in self.files:
            path = Path(file.path)
            parts = [*path.parts[1:-1], *([] if file.is_package else [path.stem])]
            for start in range(max(0, len(parts) - 8), len(parts)):
                index.setdefault(".".join(parts[start:]), []).append(file)
        return index

    def module(self, name: str, near: SourceFile) -> SourceFile | None:
        """The file of a module as another file imports it: of several, the one with the nearest folder."""
        candidates = self._by_suffix.get(name, ())
        return max(candidates, key=lambda file: _nearness(file.path, near.path), default=None)

    @cached_property
    def _definitions(self) -> dict[SourceFile, dict[str, ast.AST]]:
        return {}

    def definitions(self, file: SourceFile) -> Mapping[str, ast.AST]:
        """What each name at the top of a file is bound to: a function, a class, or an assigned expression."""
        if file not in self._definitions:
            self._definitions[file] = dict(_top_level(file.tree.body))
        return self._definitions[file]

    def definition(self, dotted: str, near: SourceFile) -> Definition | None:
        """Where a dotted name is defined in the project, through re-exports; None for a name of a library."""
        for _ in range(MAX_REEXPORTS):
            module, _, name = dotted.rpartition(".")
            file = self.module(module, near) if module else None
            if file is None:
                return None
            found = self.definitions(file).get(name)
            if found is not None:
                return Definition(file, found)
            target = file.imports.get(name)
            if target is None or target == dotted:
                return None
            dotted, near = target, file
        return None

    def resolve(self, node: ast.AST, file: SourceFile) -> Definition | None:
        """The definition of a name or attribute as it is written in a file, by imports and the file's own names."""
        if isinstance(node, ast.Name) and node.id in self.definitions(file):
            return Definition(file, self.definitions(file)[node.id])
        dotted = file.dotted(node)
        return self.definition(dotted, file) if dotted else None

    def bases(self, class_: Definition) -> list[Definition]:
        """The base classes that the project defines."""
        assert isinstance(class_.node, ast.ClassDef)
        found = [self.resolve(base, class_.file) for base in class_.node.bases]
        return [base for base in found if base is not None and isinstance(base.node, ast.ClassDef)]


def _nearness(path: str, other: str) -> int:
    return len(os.path.commonpath([path, other])) - path.count(os.sep)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        elif isinstance(node, ast.If):
            yield from _top_level([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _top_level([*node.body, *(s for h in node.handlers for s in h.body), *node.orelse])


def python_files(paths: Sequence[Path]) -> list[Path]:
    """The Python files that paths name: files themselves, and those below folders that hold source."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.endswith(".egg-info"))
                for name in sorted(names):
                    if name.endswith(".py") and os.path.isfile(os.path.join(folder, name)):  # no pipe, no broken link
                        found[Path(folder, name).absolute()] = None
        else:
            found[path.absolute()] = None
    return list(found)


def read_tree(contents: Mapping[str, bytes], roots: Sequence[str] = ()) -> SourceTree:
    """Parse files; those that do not parse are named with the reason."""
    files, unread = [], []
    for path, data in contents.items():
        if len(data) > MAX_BYTES:
            unread.append(UnreadFile(path, f"is larger than {MAX_BYTES >> 20} MiB"))
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape sequence in the source is not our message
                files.append(parse(path, data))
        except SyntaxError as error:
            place = f"line {error.lineno}: " if error.lineno else ""
            unread.append(UnreadFile(path, f"does not parse: {place}{error.msg}"))
        except (ValueError, RecursionError, MemoryError) as error:
            unread.append(UnreadFile(path, f"does not parse: {error or type(error).__name__}"))
    tree = SourceTree(files=files, roots=tuple(roots), unread=unread)
    _expand_stars(tree)
    return tree


def _expand_stars(tree: SourceTree) -> None:
    """Give each `from .module import *` the names that it imports from a file of the project."""
    starred = [file for file in tree.files if file.starred_modules]
    for _ in range(MAX_REEXPORTS):
        before = sum(len(file.imports) for file in starred)
        for file in starred:
            for module in file.starred_modules:
                target = tree.module(module, file)
                for name in _public_names(tree, target) if target is not None and target is not file else ():
                    if name not in tree.definitions(file):
                        file.imports.setdefault(name, f"{module}.{name}")
        if sum(len(file.imports) for file in starred) == before:
            return


def _public_names(tree: SourceTree, file: SourceFile) -> list[str]:
    """What `import *` takes from a file: the names of a written `__all__`, else those without an underscore."""
    listed = tree.definitions(file).get("__all__")
    if isinstance(listed, (ast.List, ast.Tuple)):
        return [part.value for part in listed.elts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    names = [*tree.definitions(file), *file.imports]
    return [name for name in names if not name.startswith("_") and name != "*"]
