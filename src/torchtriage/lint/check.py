"""Runs every rule over the source and returns the report."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.findings.model import Finding
from torchtriage.findings.report import Report
from torchtriage.findings.selection import suppressed
from torchtriage.findings.tap_state import SOURCE, TapState, TapStatus
from torchtriage.lint.project import SourceTree, python_files, read_tree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.rule import FILE_RULES, TREE_RULES

# The modules that register rules when they are imported.
RULE_MODULES: tuple[str, ...] = (
    "torchtriage.lint.rules.autograd",
    "torchtriage.lint.rules.changing_state",
    "torchtriage.lint.rules.changing_values",
    "torchtriage.lint.rules.compile_calls",
    "torchtriage.lint.rules.mode_flips",
    "torchtriage.lint.rules.objects",
    "torchtriage.lint.rules.side_effects",
    "torchtriage.lint.rules.tensor_values",
    "torchtriage.lint.training",
)


def lint(paths: Sequence[Path], *, working_folder: str, roots: Sequence[str] = ()) -> Report:
    """The report of the source below these paths."""
    contents = read_contents(paths)
    tree = read_tree(contents, roots or (working_folder,))
    return report_of(findings_in(tree), tree, working_folder)


def read_contents(paths: Sequence[Path]) -> dict[str, bytes]:
    """The bytes of every Python file below the paths."""
    for path in paths:
        if not path.exists():
            raise CommandError(f"nothing at {path}; give files or folders with Python source")
    contents = {}
    for path in python_files(paths):
        try:
            contents[str(path)] = path.read_bytes()
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from error
    return contents


def findings_in(tree: SourceTree) -> list[Finding]:
    """The findings of every rule: the worst first, then by place; one for each code and place."""
    for module in RULE_MODULES:
        importlib.import_module(module)
    found: list[Finding] = []
    for file in tree.files:
        for file_rule in FILE_RULES:
            found.extend(file_rule(file, tree))
    for tree_rule in TREE_RULES:
        found.extend(tree_rule(tree))
    return ranked(found)


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Without duplicates, in the order of the report."""
    unique: dict[str, Finding] = {}
    for finding in sorted(findings, key=_rank):
        unique.setdefault(finding.fingerprint, finding)
    return list(unique.values())


def _rank(finding: Finding) -> tuple[int, str, int, str]:
    place = finding.location
    return finding.severity, place.path, place.line or 0, finding.code


def report_of(findings: Sequence[Finding], tree: SourceTree, working_folder: str) -> Report:
    """The report, without what comments in the source accept."""
    comments = {(file.path, line): comment for file in tree.files for line, comment in file.suppressions.items()}
    remaining, num_suppressed, unused = suppressed(list(findings), comments)
    return Report(
        findings=remaining, num_suppressed=num_suppressed, unused_suppressions=unused,
        run=_facts(tree, working_folder), watched=[TapState(name=SOURCE)],
        not_seen=[TapState(name=u.path, status=TapStatus.NOT_PARSED, detail=u.reason) for u in tree.unread],
    )


def _facts(tree: SourceTree, working_folder: str) -> Mapping[str, object]:
    reach = reach_of(tree)
    return {
        "cwd": working_folder, "origin": SOURCE, "num_files": len(tree.files),
        "num_compile_sites": len({(site.file.path, site.line) for site in reach.sites}),
        "num_reached": len({(r.file.path, r.name) for r in reach.reached}),
        "num_lines": sum(len(file.lines) for file in tree.files),
    }
