"""The distribution of an installed package is read from the files that pip leaves beside it."""

import platform
import subprocess
from pathlib import Path

import pytest

from torchtriage.capture import process_facts as facts


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(facts, "_site_folders", lambda: [str(tmp_path)])
    return tmp_path


def installed(site: Path, name: str, **files: str) -> None:
    folder = site / f"{name}.dist-info"
    folder.mkdir()
    for file, text in files.items():
        (folder / file.replace("_txt", ".txt")).write_text(text)


def test_a_package_is_named_by_its_top_level_file(site: Path) -> None:
    installed(site, "PyYAML-6.0", top_level_txt="yaml\n_yaml\n", RECORD="ignored/__init__.py,,\n")
    assert facts.installed_libraries() == {"yaml": ("PyYAML", "6.0"), "_yaml": ("PyYAML", "6.0")}


def test_without_a_top_level_file_the_folders_of_the_record_name_it(site: Path) -> None:
    files = ("../../bin/x", "__pycache__/a.pyc", "sklearn/a.py", "scikit_learn-1.7.dist-info/RECORD", "b.py")
    installed(site, "scikit_learn-1.7", RECORD="".join(f"{file},sha256=x,1\n" for file in files))
    assert facts.installed_libraries() == {"sklearn": ("scikit-learn", "1.7")}


def test_a_distribution_without_either_has_its_own_name(site: Path) -> None:
    installed(site, "rich-15.0")
    assert facts.installed_libraries() == {"rich": ("rich", "15.0")}


def test_only_the_head_of_a_long_record_is_read(site: Path) -> None:
    installed(site, "big-1", RECORD="".join(f"big/{'é' * 40}{n}.py,,\n" for n in range(2000)) + "late/__init__.py,,\n")
    assert set(facts.installed_libraries()) == {"big"}


def test_no_process_is_started_for_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may wait for any child, or handle SIGCHLD; platform.platform() calls `uname -p`."""
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", fail)
    monkeypatch.setattr(platform, "_uname_cache", None)
    monkeypatch.setattr(platform, "_platform_cache", {})
    assert platform.machine() in facts.process_facts(1.0)["platform"]


def test_a_process_whose_working_folder_was_deleted_has_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert facts.process_facts(1.0)["cwd"] is None
