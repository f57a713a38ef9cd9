"""Lints source that a test writes out."""

from collections.abc import Sequence
from textwrap import dedent

from torchtriage.findings.model import Finding
from torchtriage.lint.check import findings_in
from torchtriage.lint.project import SourceTree, read_tree

FOLDER = "/home/me"


def tree_of(*sources: str, **files: str) -> SourceTree:
    """The files by their names without .py; a single source is train.py."""
    named = {**({"train": sources[0]} if sources else {}), **files}
    contents = {f"{FOLDER}/{name}.py": dedent(text).encode() for name, text in named.items()}
    return read_tree(contents, (FOLDER,))


def findings(*sources: str, **files: str) -> Sequence[Finding]:
    """The findings about compiled code: those about training code (TT7xx) have their own tests."""
    return [finding for finding in findings_in(tree_of(*sources, **files)) if not finding.code.startswith("TT7")]


def places(*sources: str, **files: str) -> list[str]:
    """`TT101 train.py:7` for each finding, sorted."""
    found = findings(*sources, **files)
    return sorted(f"{f.code} {f.location.path.removeprefix(FOLDER + '/')}:{f.location.line}" for f in found)
