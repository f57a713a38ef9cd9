"""Which release of torch first has each public name, read from the source in the wheels of the releases.

    torch_versions.py --folder DIR              download the wheels, keep their source in DIR, write the table
    torch_versions.py --folder DIR --check      compare the table with the source that is in DIR

The names are those that the documented modules of the installed torch export. A name is in a release if the source of
its module defines, imports or declares it there: no release is imported, so none needs its own Python.
"""

import argparse
import ast
import functools
import importlib
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parent.parent / "src" / "torchtriage" / "review" / "torch_versions.txt"
# The releases with the Python and the platform whose wheels are small.
RELEASES = [
    *((f"1.{minor}.0", "38", "macosx_10_9_x86_64") for minor in range(6, 14)),
    *((f"2.{minor}.0", "311", "macosx_10_9_x86_64") for minor in range(3)),
    *((f"2.{minor}.0", "311", "macosx_11_0_arm64") for minor in range(3, 10)),
]
MODULES = [
    "torch", "torch.amp", "torch.autograd", "torch.autograd.forward_ad", "torch.autograd.functional",
    "torch.autograd.graph", "torch.autograd.profiler", "torch.backends", "torch.backends.cuda", "torch.backends.cudnn",
    "torch.backends.mps", "torch.compiler", "torch.cuda", "torch.cuda.amp", "torch.distributed",
    "torch.distributed.fsdp", "torch.distributions", "torch.export", "torch.fft", "torch.func", "torch.fx", "torch.jit",
    "torch.library", "torch.linalg", "torch.monitor", "torch.mps", "torch.nn", "torch.nn.attention",
    "torch.nn.attention.flex_attention", "torch.nn.functional", "torch.nn.init", "torch.nn.parallel", "torch.nn.utils",
    "torch.nn.utils.parametrizations", "torch.nn.utils.parametrize", "torch.nn.utils.rnn", "torch.nn.utils.stateless",
    "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.profiler", "torch.random",
    "torch.special", "torch.testing", "torch.utils", "torch.utils.benchmark", "torch.utils.checkpoint",
    "torch.utils.data", "torch.utils.dlpack", "torch.utils.hooks", "torch.utils.tensorboard",
]
PRIVATE = ("_foreach_", "_assert_async")
DYNAMO = ["mark_dynamic", "maybe_mark_dynamic", "mark_static", "reset", "disable", "config"]
PYI = ("_C/_VariableFunctions.pyi", "_C/__init__.pyi")


def public_names() -> list[str]:
    """The dotted names that the installed torch exports, with the private ones that programs call."""
    import torch

    names = {f"torch._dynamo.{name}" for name in DYNAMO} | {"torch._dynamo"}
    names |= {f"torch.{name}" for name in dir(torch) if name.startswith(PRIVATE)}
    for module_name in MODULES:
        try:
            module = importlib.import_module(module_name)
        except ImportError:     # a module that needs a package that is not installed
            continue
        names.add(module_name)
        exported = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
        for name in exported:
            value = getattr(module, name, None)
            is_foreign = isinstance(value, types.ModuleType) and not value.__name__.startswith("torch")
            if value is not None and not name.startswith("_") and not is_foreign and _is_of_torch(value):
                names.add(f"{module_name}.{name}")
    return sorted(names)


def _is_of_torch(value: object) -> bool:
    module = getattr(value, "__module__", None) or type(value).__module__
    return module.startswith("torch") or module == "builtins"


class Release:
    """The source of one release below a folder that has `torch/` in it."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "torch"

    def has(self, dotted: str) -> bool:
        """Whether a dotted name of torch is a module of this release, or is defined in its module."""
        parts = dotted.split(".")[1:]
        if self._file(parts) is not None:
            return True
        return parts[-1] in self._names(tuple(parts[:-1])) if self._file(parts[:-1]) else False

    def _file(self, parts: list[str]) -> Path | None:
        base = self._root.joinpath(*parts)
        if (base / "__init__.py").is_file():
            return base / "__init__.py"
        return base.with_suffix(".py") if parts and base.with_suffix(".py").is_file() else None

    @functools.cache      # noqa: B019 - one object per release
    def _names(self, parts: tuple[str, ...]) -> frozenset[str]:
        path = self._file(list(parts))
        if path is None:
            return frozenset()
        names = set(_bound(path))
        package = list(parts) if path.name == "__init__.py" else list(parts[:-1])
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                target = self._target(node, package)
                if target is not None and tuple(target) != parts:
                    names |= self._names(tuple(target))
        if not parts:
            for stub in PYI:
                names |= set(_bound(self._root / stub))
        if parts == ("nn", "functional"):
            names |= set(_bound(self._root / "_C" / "_nn.pyi"))
        return frozenset(names)

    def _target(self, node: ast.ImportFrom, package: list[str]) -> list[str] | None:
        module = (node.module or "").split(".") if node.module else []
        if not node.level:
            return module[1:] if module[:1] == ["torch"] else None
        return [*package[: len(package) - node.level + 1], *module]


@functools.cache
def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, OSError):
        return ast.Module(body=[], type_ignores=[])


def _bound(path: Path) -> Iterator[str]:
    """Every name that is bound at the top of a file, also below an `if` or a `try`; strings of `__all__` too."""
    waiting: list[ast.stmt] = list(_parsed(path).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names if alias.name != "*")
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets) and node.value:
                yield from (str(c.value) for c in ast.walk(node.value) if isinstance(c, ast.Constant))
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            waiting += [s for block in ("body", "orelse", "finalbody") for s in getattr(node, block, [])]


def download(folder: Path) -> None:
    for version, python, platform in RELEASES:
        if (folder / version / "torch").is_dir():
            continue
        wheels = folder / "wheels"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", python, "--platform", platform, "-d", str(wheels), f"torch=={version}"]
        subprocess.run(command, check=True)
        wheel = next(wheels.glob(f"torch-{version}-*"))
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith((".py", ".pyi"))]
            archive.extractall(folder / version, members)
        wheel.unlink()


def table_of(folder: Path) -> str:
    """Per line: the first release, the module, the names of it that the release is the first to have."""
    first: dict[tuple[str, str], list[str]] = {}
    releases = [(version.removesuffix(".0"), Release(folder / version)) for version, _, _ in RELEASES]
    order = [version for version, _ in releases]
    for dotted in public_names():
        holders = [version for version, release in releases if release.has(dotted)]
        # A name that comes, goes and comes back is not a fact that one version states.
        if holders and holders == order[order.index(holders[0]):]:
            module, _, name = dotted.rpartition(".")
            first.setdefault((holders[0], module), []).append(name)
    lines = [
        f"{version} {module or '-'} {' '.join(sorted(names))}"
        for (version, module), names in sorted(first.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the source of the releases is kept")
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args()
    if not options.check:
        download(options.folder)
    text = table_of(options.folder)
    if options.check:
        is_current = TABLE.read_text() == text
        print("the table is what the releases have" if is_current else "the table differs from the releases")
        sys.exit(int(not is_current))
    TABLE.write_text(text)
    print(f"wrote {TABLE}: {sum(len(line.split()) - 2 for line in text.splitlines()):,} names")


if __name__ == "__main__":
    main()
