"""The folders import each other only as the design allows, and what must start at once never imports torch."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "torchtriage"
OPEN = {"background", "errors", "config", "files", "lazy", "text", ""}
VOCABULARY = "torchtriage.recording.series"     # the names of series: plain strings, for every folder
MAY_IMPORT = {
    "findings": set(), "recording": set(),
    "launch": {"recording"},        # its launcher_file only, which no observed process loads
    "diagnosis": {"findings", "recording"},
    "reporters": {"findings"},
    "lint": {"findings"},
    "tickets": {"findings", "recording", "diagnosis"},
    "review": {"findings", "recording", "lint", "tickets"},
    "remedies": {"findings", "recording", "diagnosis", "proof"},
    "capture": {"recording", "launch", "telemetry"},    # telemetry lazily, when the taps first see a training
    "rl": {"telemetry"},
    "proof": {"findings", "recording", "diagnosis", "launch", "capture"},
    "shapes": {"findings", "recording", "diagnosis", "launch", "capture", "proof"},
    "telemetry": {"recording", "findings", "diagnosis"},
    "commands": None, "integrations": None,
}
TORCH_IN = {"capture", "commands", "integrations", "demo", "telemetry", "rl", "shapes"}
TORCH_AT_TOP = {"demo", "telemetry", "rl"}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports_of(path: Path) -> list[tuple[str, bool]]:
    """(module, at the top of the file) for every import in a file."""
    tree = tree_of(path)
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "torchtriage":
                names += [f"torchtriage.{alias.name}" for alias in node.names]
        found += [(name, node in tree.body) for name in names]
    return found


def files_with_a_rule() -> list[Path]:
    """The files of the folders that may not import everything."""
    folders = {folder for folder, allowed in MAY_IMPORT.items() if allowed is not None}
    return sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] in folders)


@pytest.mark.parametrize("path", files_with_a_rule(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_folder_may(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    allowed = MAY_IMPORT[folder]
    assert allowed is not None
    for name, _ in imports_of(path):
        if name.startswith("torchtriage.") and name != VOCABULARY:
            other = name.split(".")[1]
            assert other in allowed | OPEN | {folder, "__version__"}, f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_torch_is_imported_only_where_it_may_and_never_at_the_top(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    for name, at_top in imports_of(path):
        if name == "torch" or name.startswith("torch."):
            assert folder in TORCH_IN, f"{path} imports torch"
            assert folder in TORCH_AT_TOP or not at_top, f"{path} imports torch when it is loaded"


def test_nobody_imports_the_commands() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("commands", "__main__.py"):
            continue
        assert not any(name.startswith("torchtriage.commands") for name, _ in imports_of(path)), path


TRACE = (
    'V1115 23:29:16.365000 1 torch/x.py:1] '
    '{"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
)


@pytest.mark.parametrize("words", [
    ["--help"], ["run", "--help"], ["train", "--help"], ["shapes", "--help"], ["shapes", "nowhere.py"],
    ["lint", "--no-cache", "{trace}"], ["review", "--help"], ["mcp", "--help"],
    ["verify", "--help"], ["verify", "nowhere.py", "nowhere.py"],
    ["explain", "TT203"], ["explain", "GB0059"], ["report", "-"], ["report", "{trace}"], ["ticket", "list"],
    ["fix", "{trace}"],
])
def test_the_command_starts_without_torch(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "trace.log").write_text(TRACE)
    words = [word.format(trace=tmp_path / "trace.log") for word in words]
    program = (
        "import sys\nfrom torchtriage.commands.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input="", capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_the_report_of_a_trace_imports_no_other_command_and_no_learning_rule(tmp_path: Path) -> None:
    """Most of the time of a report of a trace of a few MB is that of its imports."""
    (tmp_path / "trace.log").write_text(TRACE)
    program = (
        "import sys\nfrom torchtriage.commands.main import main\n"
        "assert main(['report', 'trace.log', '-q', '-o', 'report.html']) == 0\n"
        "print(*(n for n in sys.modules if n.startswith('torchtriage.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
    )
    unused = ("torchtriage.rl", "torchtriage.shapes", "torchtriage.tickets", "torchtriage.diagnosis.learning")
    commands = {name for name in done.stdout.split() if name.startswith("torchtriage.commands.")}
    assert commands == {f"torchtriage.commands.{name}" for name in ("base", "main", "parser", "report")}
    assert [name for name in done.stdout.split() if name.startswith(unused)] == []


def test_importing_the_package_imports_almost_nothing() -> None:
    program = "import sys, torchtriage; print(sorted(n for n in sys.modules if 'torch' in n))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "['torchtriage']"


def test_an_observed_process_without_torch_imports_next_to_nothing(tmp_path: Path) -> None:
    program = "import sys; print(*(n for n in sys.modules if n.startswith('torchtriage')))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TORCHTRIAGE": str(tmp_path / "run.triage")},
        capture_output=True, text=True, check=True, timeout=600,
    )
    assert set(done.stdout.split()) == {f"torchtriage{name}" for name in (
        "", ".capture", ".capture.autoload", ".errors", ".files", ".launch", ".launch.environment", ".launch.imports",
    )}


MAX_MODULES = 12
# Within a folder: which sub-package may import which. The folder's own modules are ".". So a rule family does not
# know the others, and a change stays in one room.
SUBPACKAGES: dict[str, dict[str, set[str]]] = {
    "capture": {
        "policy": {".", "torch_private"}, "proof": {".", "torch_private"},
        "operations": {".", "taps", "torch_private"},
        "taps": {".", "readers", "torch_private"}, "readers": set(),
        "torch_private": set(),
    },
    "diagnosis": {
        "compiles": {"."},
        "rewrites": {"."},
        "graph_breaks": {".", "compiles", "rewrites"},
        "recompiles": {".", "compiles", "rewrites"},
        "coverage": {".", "compiles", "graph_breaks"},
        "learning": {"."},
        "history": {".", "compiles", "coverage", "graph_breaks", "learning", "recompiles"},
    },
    "commands": {"change": {"."}, "ticket": {"."}},
    "recording": {"origins": {"."}},
    "integrations": {"mcp": set()},
    "lint": {
        "types": {"."}, "reach": {".", "types", "index"}, "variation": {".", "reach", "types"},
        "rules": {".", "reach", "types", "variation"}, "index": {"."},
        "training": {".", "index"},
    },
    "reporters": {"fixes": {".", "proof"}, "html": {"."}, "proof": {".", "html"}},
    "rl": {
        "compile": set(), "normalize": set(), "envs": {"."},
        "policy": {"compile", "envs"},
        "ppo": {".", "compile", "envs", "normalize", "policy"},
        "growth": {"compile", "envs"},
    },
    "proof": {"runs": set(), "numbers": {"."}, "locate": {".", "runs"}},
    "shapes": {"runs": {"."}, "functions": {".", "runs", "verdict"}, "verdict": {".", "functions", "runs"}},
    "telemetry": {
        "actions": {".", "statistics"},
        "statistics": set(),
        "gradients": {".", "statistics"},
        "ppo": {".", "gradients"},
        "recurrent": {".", "sampling"},
        "sinks": {".", "statistics"},
        "sharding": {".", "sampling", "statistics"},
        "sampling": {".", "sharding", "sinks", "statistics"},
        "contract_checks": {"sampling"},
    },
    "tickets": {
        "markdown": set(),
        "files": {".", "markdown"},
        "batches": {".", "checks", "files", "markdown"},
        "checks": {".", "batches", "files", "markdown"},
        "runs": {".", "checks", "files", "markdown"},
    },
}
# Modules that are reached by a name in a file or a command line, not by an import.
ENTRY_POINTS = {
    "__main__",                             # python -m torchtriage
    "capture.autoload",                     # torchtriage.pth
    "integrations.pytest_plugin",           # pyproject.toml
    "integrations.accelerate",              # imported by programs that use the framework
    "integrations.lightning",
    "integrations.stable_baselines3",
    "integrations.transformers",
    "rl.main",                              # the child processes of `train`
    "shapes.functions.driver",              # the child processes of `shapes module.py::function`
    "demo.sick_policy",                     # run by `demo`
}
PRIVATE = re.compile(r"\b(?:torch\._(?!assert_async)[a-z]\w*|torch(?:\.\w+)+\._[a-z]\w*)")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below it; a package by the name of its folder."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def room_of(dotted: str) -> tuple[str, str]:
    """(folder, sub-package or ".") of a module name below the package."""
    folder, *rest = dotted.split(".")
    is_subpackage = bool(rest) and (PACKAGE / folder / rest[0]).is_dir()
    return folder, rest[0] if is_subpackage else "."


@functools.cache
def inner_imports(path: Path) -> set[str]:
    """The modules below the package that a file imports, also lazily."""
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("torchtriage.") for name in names if name.startswith("torchtriage.")}


def test_a_sub_package_imports_only_the_siblings_it_may() -> None:
    for name, path in modules().items():
        folder, room = room_of(name)
        if room == "." or folder not in SUBPACKAGES:
            continue
        allowed = SUBPACKAGES[folder][room]
        for other in inner_imports(path):
            other_folder, other_room = room_of(other)
            if other_folder == folder and other_room != room and "." in other:
                assert other_room in allowed, f"{path} imports torchtriage.{other}"


def test_every_sub_package_has_its_row() -> None:
    others = ("__pycache__", "findings", "native")
    for folder in sorted(p for p in PACKAGE.iterdir() if p.is_dir() and p.name not in others):
        rooms = {p.name for p in folder.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
        assert rooms == set(SUBPACKAGES.get(folder.name, {})), folder


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    for folder in [PACKAGE, *(p for p in PACKAGE.rglob("*") if p.is_dir())]:
        names = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(names) <= MAX_MODULES, f"{folder} holds {len(names)} modules"


def test_no_public_class_name_is_used_twice() -> None:
    """The callback of every training framework has the same name: a program uses one framework."""
    owners: dict[str, Path] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] == "demo":
            continue        # a program as a user writes it, which names its classes as it likes
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name != "TriageCallback":
                assert node.name not in owners, f"{node.name} is in {owners[node.name]} and in {path}"
                owners[node.name] = path


def test_every_module_is_imported_by_another_one() -> None:
    known = modules()
    imported: set[str] = set()
    for name, path in known.items():
        imported |= {other for other in inner_imports(path) if other != name}
        texts = re.findall(r"[\"']torchtriage\.([\w.]+)[\"']", path.read_text())      # lazily exported names
        imported |= {text for text in texts if text != name}
    formats = {f"reporters.{path.stem}" for path in (PACKAGE / "reporters").glob("*.py")}    # by `--format`
    for name, path in known.items():
        if path.name == "__init__.py" or name in ENTRY_POINTS | formats:
            continue
        assert name in imported, f"nothing imports {path}"


def test_every_private_name_of_a_module_is_used_in_it() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in tree_of(path).body:
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            names = [getattr(target, "id", getattr(target, "name", "")) for target in targets]
            registered = getattr(node, "decorator_list", [])
            for name in names:
                if name.startswith("_") and not name.endswith("__") and not registered:
                    uses = len(re.findall(rf"\b{name}\b", path.read_text()))
                    assert uses > 1 or is_imported(name), f"nothing uses {name} of {path}"


@functools.cache
def is_imported(name: str) -> bool:
    """Whether another file of the package names it."""
    return sum(bool(re.search(rf"\b{name}\b", path.read_text())) for path in PACKAGE.rglob("*.py")) > 1


def test_private_names_of_torch_are_where_contributing_says() -> None:
    listed = (PACKAGE.parent.parent / "CONTRIBUTING.md").read_text()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(("capture/torch_private/", "demo/")) or f"`{name}`" in listed:
            continue
        for node in ast.walk(tree_of(path)):
            used = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            assert not PRIVATE.fullmatch(used), f"{path} uses {used}; CONTRIBUTING.md does not list it"
