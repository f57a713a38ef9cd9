"""The files that may be edited: refused with the reason where they may not, and where an edit could not be undone."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.samples import a_finding, a_process, a_recording
from torchtriage.findings.model import Change, ChangeKind, Edit, EditLabel, Fix, Location, Owner, OwnerKind
from torchtriage.recording.recording import Recording, Source
from torchtriage.remedies.proposals import combined, proposals
from torchtriage.remedies.tree import UneditableError
from torchtriage.remedies.workspace import Workspace, check_writable, project_root, write

TEXT = "import torch\n\nprint(x)\nf(y)\n"


def recorded(path: Path, text: str = TEXT) -> Recording:
    source = Source(first_line=1, lines=tuple(text.splitlines()))
    return a_recording(a_process(sources={(str(path), 3): source}))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TEXT)
    return path


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder), *words], check=True,
        capture_output=True,
    )


def remove_print(path: Path | str) -> Edit:
    change = Change(kind=ChangeKind.REMOVE, path=str(path), line=3, old="print(x)")
    return Edit(label=EditLabel.SAFE, text="remove it", changes=(change,))


def test_a_file_that_is_as_recorded_is_edited(script: Path) -> None:
    workspace = Workspace(script.parent, recorded(script))
    assert workspace.edited(remove_print(script).changes) == {str(script): b"import torch\n\nf(y)\n"}


def test_a_file_that_changed_since_the_recording_is_refused(script: Path) -> None:
    script.write_text(TEXT.replace("f(y)", "g(y)"))
    with pytest.raises(UneditableError, match=r"changed since the recording: line 4 reads 'g\(y\)'.*'f\(y\)'"):
        Workspace(script.parent, recorded(script)).content(str(script))


def test_a_file_outside_of_the_project_is_refused(script: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with pytest.raises(UneditableError, match="outside of the project"):
        Workspace(project, recorded(script)).content(str(script))


def test_a_link_out_of_the_project_is_refused(script: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").symlink_to(script)
    with pytest.raises(UneditableError, match="outside of the project"):
        Workspace(project, Recording(processes=())).content(str(project / "train.py"))


def test_an_installed_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "site-packages" / "timm" / "model.py"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    with pytest.raises(UneditableError, match="belongs to an installed package"):
        Workspace(tmp_path, Recording(processes=())).content(str(path))


@pytest.mark.parametrize("path", ["<string>", "<stdin>", "cell In[3]", "train.py"])
def test_what_is_not_a_file_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UneditableError, match=r"is not a file of the project|does not exist"):
        Workspace(tmp_path, Recording(processes=())).content(path)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UneditableError, match="does not exist any more"):
        Workspace(tmp_path, Recording(processes=())).content(str(tmp_path / "gone.py"))


def test_a_recorded_file_in_another_encoding_is_compared_as_text(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    text = "# -*- coding: latin-1 -*-\nname = 'Müller'\nprint(x)\n"
    path.write_bytes(text.encode("latin-1"))
    assert Workspace(tmp_path, recorded(path, text)).content(str(path)) == text.encode("latin-1")


def test_only_a_committed_file_is_written_without_force(script: Path) -> None:
    def refusal() -> str:
        with pytest.raises(UneditableError) as error:
            check_writable([str(script)], force=False)
        return str(error.value)

    assert "is not in a git repository" in refusal()
    git(script.parent, "init", "-q")
    assert "is not committed to git" in refusal()
    check_writable([str(script)], force=True)
    git(script.parent, "add", ".")
    git(script.parent, "commit", "-qm", "first")
    check_writable([str(script)], force=False)
    script.write_text(TEXT + "\n")
    assert "has uncommitted changes" in refusal()


def test_the_project_is_the_git_repository(script: Path) -> None:
    folder = script.parent / "package"
    folder.mkdir()
    assert project_root(folder) == folder
    git(script.parent, "init", "-q")
    assert project_root(folder) == script.parent.resolve()


def test_a_read_only_file_is_refused_even_with_force(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)     # root may write everything
    with pytest.raises(UneditableError, match=r"nothing was written: .* is read-only"):
        check_writable([str(script)], force=True)


def test_writing_keeps_the_mode_of_a_file(script: Path) -> None:
    script.chmod(0o755)
    write({str(script): b"x = 1\n"})
    assert script.read_bytes() == b"x = 1\n"
    assert script.stat().st_mode & 0o777 == 0o755


def a_sick_finding(edits: tuple[Edit, ...], **fields: object) -> object:
    return a_finding(fix=Fix(text="move it out", edits=edits), **fields)


def test_a_proposal_holds_a_diff_that_git_applies(script: Path, tmp_path: Path) -> None:
    workspace = Workspace(script.parent, recorded(script))
    (proposal,) = proposals([a_sick_finding((remove_print(script),))], workspace)
    git(script.parent, "init", "-q")
    (tmp_path / "cure.patch").write_text(proposal.edits[0].diff)
    git(script.parent, "apply", "cure.patch")
    assert script.read_text() == "import torch\n\nf(y)\n"


@pytest.mark.parametrize(("fields", "reason"), [
    ({}, "no edit is known for this statement"),
    ({"owner": Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0")}, "the line belongs to timm 1.0"),
    ({"code": "TT401"}, "no edit is known for this rule"),
    ({"location": Location(path="unknown")}, "it concerns the entire run"),
])
def test_a_finding_without_an_edit_says_why(fields: dict[str, object], reason: str, script: Path) -> None:
    (proposal,) = proposals([a_sick_finding((), **fields)], Workspace(script.parent, recorded(script)))
    assert not proposal.edits
    assert reason in proposal.reason


def test_edits_of_one_statement_do_not_meet(script: Path) -> None:
    guard = Edit(label=EditLabel.SAFE, text="guard", changes=(
        Change(kind=ChangeKind.WRAP, path=str(script), line=3, old="print(x)", new="if y"),))
    other = Edit(label=EditLabel.SAFE, text="cut", changes=(
        Change(kind=ChangeKind.REPLACE, path=str(script), line=4, old="y", new="z"),))
    choices = [(a_finding(code), edit) for code, edit in (
        ("TT101", remove_print(script)), ("TT102", guard), ("TT103", other), ("TT104", other))]
    together, files = combined(choices, Workspace(script.parent, recorded(script)))
    assert together.edits == (remove_print(script), other)
    assert [finding.code for finding, _ in together.left_out] == ["TT102"]
    assert files == {str(script): b"import torch\n\nf(z)\n"}


def test_a_diff_shows_a_missing_newline_at_the_end(script: Path) -> None:
    script.write_text(TEXT.rstrip("\n"))
    workspace = Workspace(script.parent, recorded(script))
    (proposal,) = proposals([a_sick_finding((remove_print(script),))], workspace)
    assert "\\ No newline at end of file" in proposal.edits[0].diff
