"""The format of a report follows from --format, else from the extension of the file."""

import argparse
import json
from pathlib import Path

import pytest

from torchtriage.commands.base import format_of, show
from torchtriage.commands.main import main
from torchtriage.config import FORMATS, Config
from torchtriage.findings.report import Report

TRACE = Path(__file__).parents[2] / "recordings" / "traces" / "train-torch2.13.log"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x.html", "html"), ("x.htm", "html"), ("x.md", "markdown"), ("x.sarif", "sarif"), ("x.sarif.json", "sarif"),
        ("x.json", "json"), ("x.trace.json", "chrome"), ("x.txt", "text"), ("X.SARIF", "sarif"), ("x", "text"),
        ("x.json.bak", "text"), ("a.md/x", "text"), (None, "text"),
    ],
)
def test_the_extension_decides_the_format(path: str | None, expected: str) -> None:
    assert format_of(Config(), path) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_the_flag_overrides_the_extension(name: str) -> None:
    assert format_of(Config(format=name), "x.md") == name


@pytest.mark.parametrize(("name", "begins"), [
    ("x.md", "**torchtriage: "), ("x.sarif", '{\n "$schema"'), ("x.json", '{\n "schema": 1'), ("x.txt", "TT"),
])
def test_report_writes_the_file_in_its_format(
    name: str, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(TRACE), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text().startswith(begins)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"torchtriage: wrote {tmp_path / name}\n")


def test_a_format_goes_to_stdout_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(TRACE), "--format", "sarif"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"
    assert main(["report", str(TRACE), "--format", "github"]) == 0
    assert all(line.startswith("::") for line in capsys.readouterr().out.splitlines())


def test_an_unknown_format_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["report", str(TRACE), "--format", "xml"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "xml" in error
    assert all(name in error for name in FORMATS)


def test_redact_does_not_change_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(TRACE), "--redact", "--fail-on", "P4"]) == 1
    assert "file-1.py" in capsys.readouterr().out


def test_a_redacted_report_does_not_name_the_recording(capsys: pytest.CaptureFixture[str]) -> None:
    for redact in (False, True):
        show(
            Report(findings=[]),
            Config(),
            argparse.Namespace(redact=redact, verbose=False),
            next_command="report secret.triage",
        )
        assert ("secret.triage" in capsys.readouterr().out) is not redact
