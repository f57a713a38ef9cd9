"""The code that has to do with torch.compile, found by its text before anything is evaluated."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torchtriage.lint.project import SourceTree
from torchtriage.lint.source import SourceFile

# `re.compile(` is none of ours.
_COMPILES = re.compile(
    r"\btorch\.compile\b|\b_dynamo\.optimize\b|from torch import [^\n]*\bcompile\b|(?<!\bre)(?<!\bregex)\.compile\("
)
_WORD = re.compile(r"[^\W\d]\w*")
Definitions = Sequence[tuple[str, bool, frozenset[str]]]
_TOP = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(eq=False, slots=True)
class Relevance:
    """For each file that matters, the names at its top whose code leads to a torch.compile."""

    names: dict[SourceFile, set[str]] = field(default_factory=dict)
    mentioned: set[str] = field(default_factory=set)    # names in the text of another definition

    def is_relevant(self, file: SourceFile, name: str) -> bool:
        return name in self.names.get(file, ())


def relevance_of(tree: SourceTree) -> Relevance:
    """The functions and classes that compile something, and those that use them, through all imports."""
    found = Relevance()
    words: dict[SourceFile, set[str]] = {}  # names that lead to a compile, as the file writes them
    definitions: dict[SourceFile, Definitions] = {}
    waiting = []
    for file in tree.files:
        if "torch" in file.text and _COMPILES.search(file.text):
            found.names[file], words[file] = set(), set()
            waiting.append(file)
    if not waiting:
        return found
    importers = _importers(tree)
    while waiting:
        file = waiting.pop()
        if file not in definitions:
            definitions[file] = _definitions(file)
            found.mentioned.update(*(mentions - {name} for name, _, mentions in definitions[file]))
        if not _grow(definitions[file], found.names[file], words[file]):
            continue
        for importer, aliases in importers.get(file, {}).items():
            used = {alias for alias, name in aliases.items() if name == "" or name in found.names[file]}
            if used - words.get(importer, set()):
                words.setdefault(importer, set()).update(used)
                found.names.setdefault(importer, set())
                waiting.append(importer)
    return found


def _grow(definitions: Definitions, names: set[str], words: set[str]) -> bool:
    """Add the definitions whose text compiles or names one that does; whether anything is new to importers."""
    before = len(names)
    leading = names | words
    changed = True
    while changed:
        changed = False
        for name, has_compile, mentioned in definitions:
            if name not in names and (has_compile or not leading.isdisjoint(mentioned)):
                names.add(name)
                leading.add(name)
                changed = True
    return len(names) > before or before == 0


def _definitions(file: SourceFile) -> list[tuple[str, bool, frozenset[str]]]:
    """(name, whether its text compiles something, the words of its text) of each definition at the top of a file."""
    found = []
    for node in file.tree.body:
        name = _bound_name(node)
        if name:
            text = "\n".join(file.lines[_first_line(node) - 1 : node.end_lineno])
            found.append((name, bool(_COMPILES.search(text)), frozenset(_WORD.findall(text))))
    return found


def _bound_name(node: ast.stmt) -> str:
    if isinstance(node, _TOP):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([int(node.lineno), *(int(d.lineno) for d in decorators)])


def _importers(tree: SourceTree) -> Mapping[SourceFile, dict[SourceFile, dict[str, str]]]:
    """For each file, the files that import from it: the alias there and the name here, empty for the file itself."""
    importers: dict[SourceFile, dict[SourceFile, dict[str, str]]] = {}
    for file in tree.files:
        for alias, dotted in file.imports.items():
            module, _, name = dotted.rpartition(".")
            for other, own in _candidates(tree, file, dotted, module, name):
                if other is not file:
                    importers.setdefault(other, {}).setdefault(file, {})[alias] = own
    return importers


def _candidates(
    tree: SourceTree,
    file: SourceFile,
    dotted: str,
    module: str,
    name: str,
) -> Iterable[tuple[SourceFile, str]]:
    whole = tree.module(dotted, file)
    if whole is not None:
        yield whole, ""
    parent = tree.module(module, file) if module else None
    if parent is not None:
        yield parent, name
        definition = tree.definition(dotted, file)  # through a re-export
        if definition is not None and definition.file is not parent:
            yield definition.file, name
