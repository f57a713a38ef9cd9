"""Runs every rule over the source."""

import gc
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.files import open_regular
from torchtriage.findings.model import Finding
from torchtriage.findings.report import Report
from torchtriage.findings.selection import suppressed
from torchtriage.findings.tap_state import SOURCE, TapState, TapStatus
from torchtriage.lint.cache import LintCache
from torchtriage.lint.index.project_files import outside_state
from torchtriage.lint.project import MAX_BYTES, SourceTree, UnreadFile, python_files, read_tree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.result import LintResult
from torchtriage.lint.rule import FILE_RULES, TREE_RULES

# The modules that register rules when they are imported.
RULE_MODULES: tuple[str, ...] = (
    "torchtriage.lint.rules.autograd",
    "torchtriage.lint.rules.changing_state",
    "torchtriage.lint.rules.changing_values",
    "torchtriage.lint.rules.compile_calls",
    "torchtriage.lint.rules.compile_use",
    "torchtriage.lint.rules.mode_flips",
    "torchtriage.lint.rules.objects",
    "torchtriage.lint.rules.side_effects",
    "torchtriage.lint.rules.tensor_values",
    "torchtriage.lint.training",
)


def lint(paths: Sequence[Path], roots: Sequence[str], cache: LintCache | None = None) -> LintResult:
    """The findings in the source below these paths; `roots` are the folders below which fingerprints write paths."""
    contents = read_contents(paths)
    key = cache.key(contents, roots, outside_state(list(contents))) if cache is not None else ""
    known = cache.find(key) if cache is not None else None
    if known is not None:
        return known
    with _without_collector():
        result = _lint(contents, roots)
    if cache is not None:
        cache.keep(key, result)
    return result


@contextmanager
def _without_collector() -> Iterator[None]:
    """Syntax trees are millions of objects that stay; to look for garbage among them takes longer than to parse."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _lint(contents: Mapping[str, bytes], roots: Sequence[str]) -> LintResult:
    tree = read_tree(contents, roots)
    cut = [UnreadFile(file.path, f"line {line} {reason}") for file, line, reason in reach_of(tree).cut]
    return LintResult(
        findings=findings_in(tree), facts=_facts(tree), unread=[*tree.unread, *cut],
        comments={(file.path, line): c for file in tree.files for line, c in file.suppressions.items()},
    )


def read_contents(paths: Sequence[Path]) -> dict[str, bytes]:
    """The bytes of every Python file below the paths."""
    for path in paths:
        if not path.exists():
            raise CommandError(f"nothing at {path}; give files or folders with Python source")
    contents = {}
    for path in python_files(paths):
        try:
            with open_regular(path, follow=True) as file:
                contents[str(path)] = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from error
    return contents


def findings_in(tree: SourceTree) -> list[Finding]:
    """The findings of every rule: the worst first, then by place; one for each fingerprint."""
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


def report_of(
    result: LintResult, findings: Sequence[Finding], *, working_folder: str,
    per_file_ignores: Mapping[str, Sequence[str]] | None = None,
) -> Report:
    """The report of these findings, without what comments and per-file ignores accept."""
    kept = [f for f in findings if not _is_ignored(f, per_file_ignores or {}, working_folder)]
    remaining, num_suppressed, unused = suppressed(kept, result.comments)
    return Report(
        findings=remaining, num_suppressed=num_suppressed, unused_suppressions=unused,
        num_hidden=len(findings) - len(kept),
        run={"cwd": working_folder, **result.facts}, watched=[TapState(name=SOURCE)],
        not_seen=[TapState(name=u.path, status=TapStatus.NOT_PARSED, detail=u.reason) for u in result.unread],
    )


def _is_ignored(finding: Finding, ignores: Mapping[str, Sequence[str]], folder: str) -> bool:
    path = finding.location.path.removeprefix(f"{folder}/")
    name = path.rpartition("/")[2]
    return any(
        finding.code.startswith(tuple(codes)) and (fnmatch(path, pattern) or fnmatch(name, pattern))
        for pattern, codes in ignores.items() if codes
    )


def _facts(tree: SourceTree) -> Mapping[str, object]:
    reach = reach_of(tree)
    return {
        "origin": SOURCE,
        "num_files": len(tree.files),
        "num_lines": sum(len(file.lines) for file in tree.files),
        "num_compile_sites": len({(site.file.path, site.line) for site in reach.sites}),
        "num_reached": len({(r.file.path, r.name) for r in reach.reached}),
    }
