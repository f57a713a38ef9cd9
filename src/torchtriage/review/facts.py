"""The facts about reviewed source that a batch report states beside the findings."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchtriage.lint.check import read_contents
from torchtriage.lint.index.names import project_names
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.project import SourceTree, UnreadFile, read_tree
from torchtriage.lint.source import SourceFile
from torchtriage.review.allocations import allocations_in
from torchtriage.review.features import features_of, required_torch, torch_names
from torchtriage.text import short_path
from torchtriage.tickets.batches.source_facts import ReviewedFile, SourceFacts, UntestedName

_PARAGRAPH = re.compile(r"\n\s*\n")


def source_facts(
    paths: Sequence[Path], roots: Sequence[str], *, unread: Sequence[UnreadFile] = (),
    num_parameters: int | None = None, domain: str = "",
) -> SourceFacts:
    """The facts about the files below these paths; tests among them are read but not reviewed.

    `roots` are the folders that paths are relative to, `unread` the files that lint left out, or a part of.
    """
    tree = read_tree(read_contents(paths), roots)
    sources = [file for file in tree.files if not is_test(file, tree)]
    names = {file.path: torch_names(file) for file in sources}
    problems = {each.path: each.reason for each in unread}
    files = [_reviewed(file, names, problems, roots) for file in sources]
    files += [ReviewedFile(path=short_path(each.path, roots), problem=each.reason) for each in tree.unread]
    used = [(short_path(path, roots), names[path]) for path in sorted(names)]
    return SourceFacts(
        files=tuple(sorted(files, key=lambda file: file.path)), features=tuple(features_of(used)),
        allocations=tuple(found for file in sources for found in allocations_in(file, short_path(file.path, roots))),
        untested=tuple(_untested(sources, tree, roots)), tests_read=_has_tests(tree),
        torch_minimum=required_torch([file.path for file in tree.files]), num_parameters=num_parameters, domain=domain,
    )


def _reviewed(
    file: SourceFile, names: Mapping[str, tuple[str, ...]], problems: Mapping[str, str], roots: Sequence[str],
) -> ReviewedFile:
    return ReviewedFile(
        path=short_path(file.path, roots), purpose=purpose_of(file.tree), torch_names=names[file.path],
        num_lines=len(file.lines), problem=problems.get(file.path, ""),
    )


def purpose_of(tree: ast.Module) -> str:
    """The first paragraph of the docstring of a module on one line; empty without a docstring."""
    docstring = ast.get_docstring(tree) or ""
    return " ".join(_PARAGRAPH.split(docstring.strip())[0].split())


def _has_tests(tree: SourceTree) -> bool:
    names = project_names(tree)
    return names.has_tests and names.is_whole


def _untested(sources: Sequence[SourceFile], tree: SourceTree, roots: Sequence[str]) -> Iterator[UntestedName]:
    """The public classes and functions at the top of files that no test of the project names."""
    if not _has_tests(tree):
        return
    names = project_names(tree)
    for file in sources:
        for node in file.tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if not node.name.startswith("_") and not names.is_named_in_tests(node.name):
                yield UntestedName(
                    name=node.name, kind="class" if isinstance(node, ast.ClassDef) else "function",
                    path=short_path(file.path, roots), line=node.lineno, has_state=_has_state(node),
                )


def _has_state(node: ast.AST) -> bool:
    methods = {child.name for child in ast.iter_child_nodes(node) if isinstance(child, ast.FunctionDef)}
    return {"state_dict", "load_state_dict"} <= methods
