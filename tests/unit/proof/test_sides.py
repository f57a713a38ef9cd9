"""Each side runs in its own copy; what cannot be run is refused with the way out."""

import subprocess
from pathlib import Path

import pytest

from torchtriage.errors import CommandError
from torchtriage.proof import sides


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    for name in ("before.py", "after.py", "lib/helper.py", ".git/config", "x.triage/run.sqlite", "__pycache__/c.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    monkeypatch.chdir(root)
    return root


def test_both_scripts_run_under_one_name_in_copies(project: Path, tmp_path: Path) -> None:
    before, after = sides.script_sides("before.py", "after.py", ["--x"], tmp_path / "work")
    for side, text in ((before, "before.py"), (after, "after.py")):
        assert side.is_copy
        assert Path(side.command[1]).name == "before.py"
        assert Path(side.command[1]).read_text() == text
        assert side.command[2:] == ["--x"]
        assert side.cwd is not None
        assert (side.cwd / "lib" / "helper.py").exists()
        assert not (side.cwd / ".git").exists()
        assert not (side.cwd / "x.triage").exists()
    assert (project / "before.py").read_text() == "before.py"
    assert (before.label, after.label) == ("before.py", "after.py")


def test_a_script_that_imports_the_other_keeps_its_name(project: Path, tmp_path: Path) -> None:
    (project / "after.py").write_text("from before import net\n")
    _, after = sides.script_sides("before.py", "after.py", [], tmp_path / "work")
    assert Path(after.command[1]).name == "after.py"


def test_a_large_folder_is_used_in_place(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sides, "MAX_FILES", 1)
    before, _ = sides.script_sides("before.py", "after.py", [], tmp_path / "work")
    assert (before.is_copy, before.cwd, Path(before.command[1])) == (False, None, (project / "before.py").resolve())


def test_what_cannot_be_run_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no script at nowhere\.py"):
        sides.script_sides("before.py", "nowhere.py", [], tmp_path)
    with pytest.raises(CommandError, match="no program 'no-such-program'"):
        sides.command_sides("no-such-program x", "python y", tmp_path)
    with pytest.raises(CommandError, match="cannot split"):
        sides.command_sides("python 'x", "python y", tmp_path)
    with pytest.raises(CommandError, match="no interpreter at no-python"):
        sides.python_sides(["no-python", "python3"], "before.py", [], tmp_path)
    with pytest.raises(CommandError, match=r"before\.py is not a recording"):
        sides.are_recordings("x.triage", "before.py")


def test_a_revision_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trees = sides.Worktrees(tmp_path / "work", lambda text: None)
    with pytest.raises(CommandError, match="not a git repository"):
        trees.sides(["HEAD", "."], ["train.py"])
    subprocess.run(["git", "init", "-q"], check=True)
    with pytest.raises(CommandError, match="nothing is not a revision"):
        trees.sides(["nothing", "."], ["train.py"])


def test_a_recording_that_is_missing_is_named_as_one() -> None:
    with pytest.raises(CommandError, match=r"no recording at old\.triage; make one with"):
        sides.check_script("old.triage")
