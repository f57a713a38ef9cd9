"""The index of a project: which file names a function, class, field or export."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from torchtriage.files import read_regular
from torchtriage.lint.index.project_files import (
    document_files,
    is_installed,
    is_test,
    is_test_path,
    other_files,
    project_root,
)
from torchtriage.lint.index.syntax import last_name
from torchtriage.lint.project import MAX_BYTES, SourceTree
from torchtriage.lint.source import SourceFile

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, eq=False)
class ProjectNames:
    """What the files of a project name. `other_words` are the words of files that are not linted themselves.

    `is_whole`: every file of the project was read, so "nothing names it" can be said. Tests are counted separately.
    """

    tree: SourceTree
    other_words: Mapping[str, frozenset[str]]
    other_tests: frozenset[str]
    is_whole: bool
    documents: frozenset[str] = frozenset()

    def is_documented(self, name: str) -> bool:
        """Whether the README or a page of the docs names it."""
        return name in self.documents

    @cached_property
    def _files_by_name(self) -> Mapping[str, list[SourceFile]]:
        index: dict[str, list[SourceFile]] = {}
        for file in self.tree.files:
            for name in names_of(file):
                index.setdefault(name, []).append(file)
        return index

    @cached_property
    def has_tests(self) -> bool:
        return bool(self.other_tests) or any(is_test(file, self.tree) for file in self.tree.files)

    @cached_property
    def _tests_import(self) -> frozenset[str]:
        tests = [file for file in self.tree.files if is_test(file, self.tree)]
        return frozenset(dotted.rpartition(".")[2] for file in tests for dotted in file.imports.values())

    def is_named_in_tests(self, name: str) -> bool:
        if any(is_test(file, self.tree) for file in self._files_by_name.get(name, ())) or name in self._tests_import:
            return True
        return any(name in words for path, words in self.other_words.items() if path in self.other_tests)

    def is_named_in_other_source(self, name: str) -> bool:
        """Whether a file that is neither linted nor a test has this word."""
        return any(name in words for path, words in self.other_words.items() if path not in self.other_tests)

    def uses(self, name: str) -> Iterator[tuple[SourceFile, ast.AST]]:
        """Every place in linted source, without tests, that reads a name, an attribute or a string of this name."""
        for file in self._files_by_name.get(name, ()):
            if not is_test(file, self.tree):
                for node in uses_in(file, name):
                    yield file, node

    def is_used(self, name: str, outside: Iterable[ast.AST] = ()) -> bool:
        """Whether source of the project, apart from tests, names it outside of these nodes."""
        if self.is_named_in_other_source(name):
            return True
        excluded = set(outside)
        return any(
            node not in excluded and excluded.isdisjoint(file.ancestors(node)) for file, node in self.uses(name)
        )


@lru_cache(maxsize=2)
def project_names(tree: SourceTree) -> ProjectNames:
    """The index of a tree, with the words of the files of its project that are not linted."""
    paths = [file.path for file in tree.files]
    others = other_files(paths)
    installed = bool(paths) and all(is_installed(path) for path in paths)
    words = {str(path): _words(path) for path in others or ()}
    documents = frozenset().union(*(_words(path) for path in document_files(paths)))
    root = project_root(paths)
    tests = frozenset(path for path in words if root is not None and is_test_path(path, root))
    return ProjectNames(tree, words, tests, others is not None and not installed, documents)


def _words(path: Path) -> frozenset[str]:
    try:
        return frozenset(_WORD.findall(read_regular(path, MAX_BYTES, follow=True).decode("utf-8", "replace")))
    except OSError:
        return frozenset()


@lru_cache(maxsize=4096)
def names_of(file: SourceFile) -> frozenset[str]:
    """Every name that a file may use: names and attributes that are read, and words of strings that are one word."""
    found = {node.id for node in file.of_type(ast.Name) if isinstance(node.ctx, ast.Load)}
    found |= {node.attr for node in file.of_type(ast.Attribute) if isinstance(node.ctx, ast.Load)}
    for node in file.of_type(ast.Constant):
        if isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return frozenset(found)


def uses_in(file: SourceFile, name: str) -> Iterator[ast.AST]:
    """The nodes of a file that read a name; the strings of `__all__` only export it."""
    for node in file.of_type(ast.Name):
        if node.id == name and isinstance(node.ctx, ast.Load):
            yield node
    for attribute in file.of_type(ast.Attribute):
        if attribute.attr == name and isinstance(attribute.ctx, ast.Load):
            yield attribute
    for constant in file.of_type(ast.Constant):
        if constant.value == name and not _in_all(file, constant):
            yield constant


def _in_all(file: SourceFile, node: ast.AST) -> bool:
    for parent in file.ancestors(node):
        if isinstance(parent, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            assigned = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return any(last_name(target) == "__all__" for target in assigned)
    return False


def exports(file: SourceFile) -> Mapping[str, ast.AST]:
    """The names in `__all__` of a file, with their nodes; without it, what a package imports from its modules."""
    found: dict[str, ast.AST] = {}
    for constant in file.of_type(ast.Constant):
        if isinstance(constant.value, str) and _in_all(file, constant):
            found[constant.value] = constant
    if not found and file.is_package:
        for imported in file.of_type(ast.ImportFrom):
            is_own = imported.level or (imported.module or "").startswith(f"{file.module}.")
            for alias in imported.names:
                if is_own and alias.name != "*":
                    found[alias.asname or alias.name] = alias
    return found


@lru_cache(maxsize=2)
def exported_names(tree: SourceTree) -> frozenset[str]:
    """Every name that some package of the tree exports."""
    return frozenset(name for file in tree.files if file.is_package for name in exports(file))
