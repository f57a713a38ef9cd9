"""A report is written as a whole, to the file that was named and to no other."""

import errno
import os
from pathlib import Path

import pytest

from torchtriage.commands.main import main

TRACE = str(Path(__file__).parents[2] / "recordings" / "traces" / "train-torch2.13.log")


@pytest.mark.parametrize("flags", [[], ["--force"]])
def test_a_report_is_not_written_through_a_link_to_nothing(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "report.html").symlink_to("elsewhere")
    assert main(["report", TRACE, "-o", str(tmp_path / "report.html"), *flags]) == 2
    assert os.listdir(tmp_path) == ["report.html"]
    assert ("symbolic link" if flags else "exists") in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-o", "{}"], ["--baseline", "{}", "--update-baseline"]], ids=["report", "baseline"])
def test_a_full_disk_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "out.json"
    path.write_text("earlier")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    assert main(["report", TRACE, *(word.format(path) for word in words), "--force"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("out.json", "earlier")]


def test_a_report_is_written_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert main(["report", TRACE, "-o", str(tmp_path / "pipe"), "--force", "--quiet"]) == 0
    assert b"TT" in os.read(reader, 1000)
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]
