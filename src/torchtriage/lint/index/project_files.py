"""Which files belong to the project of the linted files."""

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from torchtriage.lint.project import SourceTree, python_files
from torchtriage.lint.source import SourceFile

MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
MAX_LEVELS = 6          # folders above the linted ones in which a project may begin
MAX_OTHER_FILES = 3000  # a larger tree is not read for the sake of a few names
# What is below such a folder is a separate project, not a part of the one around it.
_SEPARATE = frozenset({"test", "tests", "fixtures", "examples", "benchmarks"})
_TEST_FILE = re.compile(r"(?:^|/)(?:tests?/.*|test_[^/]*|[^/]*_test|conftest)\.py$")


def is_test(file: SourceFile, tree: SourceTree) -> bool:
    """Whether a linted file holds tests, by its name or a folder below the linted ones."""
    return file.path in _test_files(tree)


@lru_cache(maxsize=2)
def _test_files(tree: SourceTree) -> frozenset[str]:
    paths = [file.path for file in tree.files]
    folder = common_folder(paths)
    return frozenset(path for path in paths if is_test_path(path, folder))


def is_test_path(path: str, folder: Path) -> bool:
    """Whether a path is one of tests, judged from this folder on: a project may itself be below a folder of tests."""
    return bool(_TEST_FILE.search(os.path.relpath(path, folder).replace(os.sep, "/")))


def common_folder(paths: Sequence[str]) -> Path:
    """The innermost folder that holds all of the files."""
    return Path(os.path.commonpath([os.path.dirname(path) for path in paths]))


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed package, whose tests and callers are elsewhere."""
    parts = Path(path).parts
    if {"site-packages", "dist-packages"} & set(parts):
        return True
    return any(_holds_distributions(str(parent)) for parent in list(Path(path).parents)[:MAX_LEVELS])


_distributions: dict[str, bool] = {}


def _holds_distributions(folder: str) -> bool:
    if folder not in _distributions:
        try:
            names = os.listdir(folder)
        except OSError:
            names = []
        _distributions[folder] = any(name.endswith(".dist-info") for name in names)
    return _distributions[folder]


def project_root(paths: Sequence[str]) -> Path | None:
    """The folder in which the project of these files begins; None for a single file or files without a folder."""
    if len(paths) < 2:
        return None
    common = common_folder(paths)
    if not common.is_dir():
        return None
    for folder in [common, *common.parents][:MAX_LEVELS]:
        if any((folder / marker).exists() for marker in MARKERS):
            return folder
        if folder.name in _SEPARATE:
            break
    while (common / "__init__.py").is_file():
        common = common.parent
    return common


def other_files(paths: Sequence[str]) -> list[Path] | None:
    """The remaining Python files of the project; None if its extent is not known."""
    root = project_root(paths)
    if root is None:
        return None
    if any((root / marker).exists() for marker in MARKERS):
        found = python_files([root])
    else:       # no marker: only what certainly belongs to the linted package
        folders = [child for child in root.iterdir() if child.is_dir() and _belongs(child, paths)]
        found = python_files([*folders, *root.glob("*.py")])
    known = set(paths)
    others = [path for path in found if str(path) not in known]
    return others if len(others) <= MAX_OTHER_FILES else None


def document_files(paths: Sequence[str]) -> list[Path]:
    """The README and the pages of the docs of the project."""
    root = project_root(paths)
    if root is None or not any((root / marker).exists() for marker in MARKERS):
        return []
    return [*root.glob("README*"), *root.glob("docs/**/*.md"), *root.glob("docs/**/*.rst")]


def _belongs(folder: Path, paths: Sequence[str]) -> bool:
    inside = str(folder) + os.sep
    return folder.name in ("test", "tests") or any(path.startswith(inside) for path in paths)


def outside_state(paths: Sequence[str]) -> list[str]:
    """Path, size and time of every file of the project that is read beside the linted ones: tests, callers, docs."""
    state = []
    for path in [*(other_files(paths) or ()), *document_files(paths)]:
        try:
            found = path.stat()
        except OSError:
            continue
        state.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    return state
