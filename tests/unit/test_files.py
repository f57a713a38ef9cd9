"""A file is replaced as a whole or not at all, and nothing but a regular file is read."""

import errno
import io
import os
import stat
from pathlib import Path

import pytest

from torchtriage.files import open_regular, read_regular, replace_file


def test_a_new_file_gets_the_mode_that_any_new_file_gets(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    replace_file(tmp_path / "new", b"text")
    assert (tmp_path / "new").read_bytes() == b"text"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("durable", [False, True])
def test_an_existing_file_keeps_its_mode(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    path.chmod(0o640)
    replace_file(path, io.BytesIO(b"new" * 1000), durable=durable)
    assert path.read_bytes() == b"new" * 1000
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize("broken", ["replace", "chmod"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "x").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(OSError, match="No space left"):
            replace_file(tmp_path / "x", b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_text("old")
    (tmp_path / "link").symlink_to("real/x")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x").read_text() == "new"


def test_nothing_is_written_through_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OSError, match="a symbolic link to a file that does not exist"):
        replace_file(tmp_path / "link", b"new")
    assert os.listdir(tmp_path) == ["link"]


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_not_a_regular_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")
    mode = path.stat().st_mode
    with pytest.raises(OSError, match="it is not a regular file"):
        replace_file(path, b"text")
    assert path.stat().st_mode == mode
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder", "device", "missing"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.symlink_to({"link": tmp_path / "secret", "dangling": "nowhere", "device": "/dev/zero"}[kind])
    with pytest.raises(OSError):
        open_regular(path)
    if kind == "link":
        assert read_regular(path, 100, follow=True) == b"secret"
    else:
        with pytest.raises(OSError):
            open_regular(path, follow=True)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_regular(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="it is larger than 4 bytes"):
        read_regular(tmp_path / "x", 4)
