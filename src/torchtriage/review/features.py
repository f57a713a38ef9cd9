"""The names of torch in the reviewed source, with the release that introduced each."""

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchtriage.files import read_regular
from torchtriage.lint.index.project_files import project_root
from torchtriage.lint.project import MAX_BYTES
from torchtriage.lint.source import SourceFile
from torchtriage.review.torch_versions import is_module, since
from torchtriage.tickets.batches.source_facts import TorchFeature

_REQUIREMENT = re.compile(r"torch\s*(?:\[[^]]*\])?\s*[(]?\s*(?:>=|~=|==)\s*(\d+(?:\.\d+)*)")


def torch_names(file: SourceFile) -> tuple[str, ...]:
    """The names of torch that a file uses, each as far as the table of releases knows names below it."""
    found: set[str] = set()
    for node in file.of_type(ast.Attribute, ast.Name):
        parent = file.parent(node)
        is_inner = isinstance(parent, ast.Attribute) and parent.value is node
        dotted = "" if is_inner else file.dotted(node)
        if dotted.startswith("torch."):
            found.add(_cut(dotted))
    return tuple(sorted(name for name in found if name))


def _cut(dotted: str) -> str:
    """`torch.nn.Linear` of `torch.nn.Linear.forward`: one name after the last module; empty for a module itself."""
    parts = dotted.split(".")
    for end in range(2, len(parts) + 1):
        name = ".".join(parts[:end])
        if not is_module(name):
            return name
    return ""


def features_of(names_by_file: Sequence[tuple[str, Sequence[str]]]) -> Iterator[TorchFeature]:
    """Every used name with its first release and the files that use it."""
    files: dict[str, list[str]] = {}
    for path, names in names_by_file:
        for name in names:
            files.setdefault(name, []).append(path)
    for name in sorted(files):
        yield TorchFeature(name=name, since=since(name), files=tuple(files[name]))


def required_torch(paths: Sequence[str]) -> str:
    """The oldest torch that the pyproject.toml of these files allows; empty if it names none."""
    root = project_root(paths) or (Path(paths[0]).parent if paths else Path())
    try:
        text = read_regular(root / "pyproject.toml", MAX_BYTES, follow=True).decode()
        project = tomllib.loads(text).get("project", {})
    except (OSError, ValueError, RecursionError):
        return ""
    extras = project.get("optional-dependencies", {})
    for requirement in [*project.get("dependencies", []), *(each for extra in extras.values() for each in extra)]:
        match = _REQUIREMENT.match(str(requirement))
        if match:
            return match[1]
    return ""
