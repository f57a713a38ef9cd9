"""A new recording never takes the place of anything but an earlier one."""

import os
import re
from pathlib import Path

import pytest

from torchtriage.errors import CommandError
from torchtriage.launch.environment import FOLDER, join_folder
from torchtriage.launch.folders import free_folder, remove_recording

FILES = ("joined", "imported_torch", "policy_refused", "shapes.json", "launcher.sqlite", "rank0-my.host-12.sqlite",
         "host-12-2.sqlite", "host-12.sqlite-wal", "host-12.sqlite-shm", "host-12.error", ".host-12.sqlite.ab12.tmp")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    folder = join_folder({FOLDER: str(tmp_path / "out.triage")})
    assert folder is not None
    for name in FILES:
        (Path(folder) / name).touch()
    return Path(folder)


def free(folder: Path, *, replace: bool = True) -> Path:
    return free_folder(folder, replace=replace, flag="-o")


def test_a_recording_is_replaced_only_if_asked(recording: Path) -> None:
    with pytest.raises(CommandError, match="holds an earlier run; overwrite it with --force"):
        free(recording, replace=False)
    assert free(recording) == recording
    assert not recording.exists()


@pytest.mark.parametrize("name", ["thesis.tex", "users.sqlite", "notes", ".hidden", "run_id.bak", "launcher.db"])
def test_a_recording_with_another_file_is_left_alone(recording: Path, name: str) -> None:
    (recording / name).write_text("years of work")
    before = sorted(os.listdir(recording))
    with pytest.raises(CommandError, match=re.escape(f"not a recording ({name} in it is of something else)")):
        free(recording)
    with pytest.raises(OSError, match="is not of a recording"):
        remove_recording(recording)
    assert sorted(os.listdir(recording)) == before


def test_a_folder_in_a_recording_is_left_alone(recording: Path) -> None:
    (recording / "joined").unlink()
    (recording / "joined").mkdir()
    (recording / "joined" / "mine").write_text("years of work")
    with pytest.raises(CommandError, match=r"not a recording \(joined in it is of something else\)"):
        free(recording)
    assert (recording / "joined" / "mine").exists()
    assert len(os.listdir(recording)) == len(FILES) + 1


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_not_a_folder_is_left_alone(tmp_path: Path, recording: Path, kind: str) -> None:
    path = tmp_path / "other.triage"
    if kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(recording if kind == "link" else "nowhere")
    with pytest.raises(CommandError, match="exists and is not a recording; it is left alone"):
        free(path)
    assert os.path.lexists(path)
    assert recording.exists()


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "out.triage").mkdir()
    assert free(tmp_path / "out", replace=False) == tmp_path / "out.triage"
