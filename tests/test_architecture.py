"""The folders import each other only as the design allows, and what must start at once never imports torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "torchtriage"
OPEN = {"errors", "config", "files", "lazy", "text", ""}
VOCABULARY = "torchtriage.recording.series"     # the names of series: plain strings, for every folder
MAY_IMPORT = {
    "findings": set(), "recording": set(), "launch": set(),
    "diagnosis": {"findings", "recording"},
    "reporters": {"findings"},
    "tickets": {"findings", "recording", "diagnosis"},
    "capture": {"recording", "launch", "telemetry"},    # telemetry lazily, when the taps first see a training
    "rl": {"telemetry"},
    "shapes": {"findings", "recording", "diagnosis", "launch", "capture"},
    "telemetry": {"recording", "findings", "diagnosis"},
    "commands": None, "integrations": None,
}
TORCH_IN = {"capture", "commands", "integrations", "demo", "telemetry", "rl", "shapes"}
TORCH_AT_TOP = {"demo", "telemetry", "rl"}


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """(module, at the top of the file) for every import in a file."""
    tree = ast.parse(path.read_text())
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


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_folder_may(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    allowed = MAY_IMPORT.get(folder)
    if allowed is None:
        pytest.skip("may import anything")
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


@pytest.mark.parametrize("words", [
    ["--help"], ["run", "--help"], ["train", "--help"], ["shapes", "--help"], ["shapes", "nowhere.py"],
    ["explain", "TT203"], ["explain", "GB0059"], ["report", "-"], ["report", "{trace}"], ["ticket", "list"],
])
def test_the_command_starts_without_torch(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "trace.log").write_text(
        'V1115 23:29:16.365000 1 torch/x.py:1] '
        '{"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
    )
    words = [word.format(trace=tmp_path / "trace.log") for word in words]
    program = (
        "import sys\nfrom torchtriage.commands.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_almost_nothing() -> None:
    program = "import sys, torchtriage; print(sorted(n for n in sys.modules if 'torch' in n))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['torchtriage']"
