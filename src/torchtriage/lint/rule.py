"""The registry of lint rules, which turn parsed source into findings."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import fingerprint, portable_path, without_comment
from torchtriage.findings.model import YOU, Evidence, Finding, Fix, Location, Severity, SourceLine
from torchtriage.lint.project import SourceTree
from torchtriage.lint.source import SourceFile

CONTEXT = 2  # source lines shown on each side of a finding

FileRule = Callable[[SourceFile, SourceTree], Iterator[Finding]]
TreeRule = Callable[[SourceTree], Iterator[Finding]]

FILE_RULES: list[FileRule] = []
TREE_RULES: list[TreeRule] = []


def file_rule(function: FileRule) -> FileRule:
    """Register a rule that is called with each linted file."""
    FILE_RULES.append(function)
    return function


def tree_rule(function: TreeRule) -> TreeRule:
    """Register a rule that is called once, with all files."""
    TREE_RULES.append(function)
    return function


def source_finding(
    code: str,
    file: SourceFile,
    node: ast.AST,
    tree: SourceTree,
    *,
    title: str,
    cause: str,
    fix: str | Fix,
    may: bool = False,
    reason: str = "",
    **fields: Any,
) -> Finding:
    """A finding of this code at a node.

    `may`: the source alone does not decide it, so it is P4; its title should say "may". `reason` is the part of the
    fingerprint that names the cause if one line can have several findings of one code.
    """
    rule = catalogue_rule(code)
    line = getattr(node, "lineno", 1)
    qualname = file.qualname(node)
    path = portable_path(file.path, tree.roots)
    fields.setdefault("severity", Severity.P4 if may else rule.severity)
    fields.setdefault("fingerprint", fingerprint(code, path, qualname, without_comment(file.line(line)), reason))
    fields.setdefault("evidence", Evidence(source=lines_around(file, line)))
    return Finding(
        code=code,
        slug=rule.slug,
        category=rule.category,
        title=title,
        cause=cause,
        owner=YOU,
        fix=fix if isinstance(fix, Fix) else Fix(text=fix),
        location=Location(path=file.path, line=line, function=qualname, column=getattr(node, "col_offset", 0) + 1),
        **fields,
    )


def lines_around(file: SourceFile, line: int) -> tuple[SourceLine, ...]:
    numbers = range(max(1, line - CONTEXT), min(len(file.lines), line + CONTEXT) + 1)
    return tuple(SourceLine(number=n, text=file.line(n).rstrip(), is_place=n == line) for n in numbers)
