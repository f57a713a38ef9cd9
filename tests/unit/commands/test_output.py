"""What comes from a file cannot act on a terminal or on a CI runner."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporters.report_samples import a_finding
from torchtriage.commands.main import main
from torchtriage.findings.report import Report
from torchtriage.reporters import github, markdown, terminal
from torchtriage.text import harmless, harmless_text

ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMMANDS = [
    "::error::x", "::stop-commands::x", "  ::set-output name=a::b", "##[error]x", "a ##[add-mask]b",
    "\u200b::x::",
]
EVIL = "\x1b]0;title\x07\x9b31m\u202e" + "word " * 18
TICKET = """# Finding Ticket: {0}

## Metadata

| Field | Value |
|---|---|
| Ticket ID | B1-X-01 |
| Severity | P1 {0} |
| Status | open |

## Summary

::error::from a ticket
\t##[error]{0}
"""


def acts(line: str) -> bool:
    """Whether a terminal or GitHub's runner acts on the line."""
    is_command = line.lstrip().lstrip("\u200b").startswith("::") or "##[" in line or "##vso[" in line
    return is_command or bool(ACTIVE.search(line))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_line_is_not_a_workflow_command(command: str) -> None:
    assert acts(command)
    assert not acts(harmless(command))


PARTS = [*"a :#[]v\t\r\n\x1b\x9b\u202e\u2066\u200b\ufeff", "::error::", "##[x]", "##vso["]


@given(st.lists(st.sampled_from(PARTS)))
def test_no_line_of_a_text_acts_on_a_terminal_or_a_runner(parts: list[str]) -> None:
    assert not any(map(acts, harmless_text("".join(parts)).split("\n")))


def test_plain_text_is_unchanged() -> None:
    text = "a::b  # comment\n\tx[::2] = y\n## [heading]\nstd::vector\n"
    assert harmless_text(text) == text


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 77, 100])
def test_a_wrapped_line_of_a_report_is_not_a_command(command: str, width: int) -> None:
    cause = " ".join([EVIL, command] * 12)
    finding = a_finding("TT101").with_(cause=cause, title=f"{command} {EVIL}")
    report = Report(findings=[finding], unused_suppressions=[command])
    for text in (terminal.render(report, width=width, verbose=True), markdown.render(report)):
        assert not any(map(acts, text.split("\n")))
    lines = github.render(report).splitlines()
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.md").write_text(TICKET.format(EVIL), encoding="utf-8")
    (tmp_path / "b.md").write_text(TICKET.format(EVIL), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("words", [
    ["list"], ["check"], ["show", "B1-X-01"], ["show", "B1-X-02"], ["report"], ["list", "--format", "json"],
    ["check", "--format", "json"], ["show", "B1-X-03", "--format", "json"],
])
def test_a_ticket_cannot_act_on_the_terminal_or_the_runner(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str],
) -> None:
    text = (folder / "b.md").read_text(encoding="utf-8")
    (folder / "b.md").write_text(text.replace("B1-X-01", "B1-X-03"), encoding="utf-8")
    main(["ticket", words[0], "--folder", str(folder), *words[1:]])
    printed = capsys.readouterr()
    assert printed.out or printed.err
    assert not any(map(acts, (printed.out + printed.err).split("\n")))


def test_the_json_of_a_ticket_holds_its_text_unchanged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b.md").unlink()
    assert main(["ticket", "show", "B1-X-01", "--folder", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == EVIL.strip()


def test_an_error_that_quotes_a_file_cannot_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.torchtriage]\n"\\u001b[2J\\n::error::x" = 1\n')
    assert main(["explain", "TT101"]) == 2
    assert not any(map(acts, capsys.readouterr().err.split("\n")))
