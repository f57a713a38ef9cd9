"""The selection of findings by --select, --ignore and the baseline, the exit code of --fail-on, and the output."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.samples import a_finding, taps
from torchtriage.commands.base import check_gate, exit_code_of, say, select_findings, show, wants_colour
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.findings.model import Severity
from torchtriage.findings.report import Report
from torchtriage.findings.selection import check_rules_exist, read_baseline, write_baseline

FINDINGS = [
    a_finding("TT301", severity=Severity.P1, fingerprint="a"),
    a_finding("TT204", severity=Severity.P2, fingerprint="b"),
    a_finding("TT101", severity=Severity.P3, fingerprint="c"),
]
REPORT = Report(findings=FINDINGS)


def flags(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"quiet": False, "verbose": False, "force": False, "update_baseline": False, **values})


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(("select", "ignore", "expected"), [
    ((), (), ["TT301", "TT204", "TT101"]),
    (("TT301",), (), ["TT301"]),
    (("TT",), (), ["TT301", "TT204", "TT101"]),
    (("TT2", "TT3"), (), ["TT301", "TT204"]),
    ((), ("TT2",), ["TT301", "TT101"]),
    (("TT2", "TT3"), ("TT301",), ["TT204"]),
    (("TT9",), (), []),
])
def test_codes_and_prefixes_select_and_ignore(
    select: tuple[str, ...], ignore: tuple[str, ...], expected: list[str]
) -> None:
    report = select_findings(REPORT, Config(select=select, ignore=ignore), flags())
    assert codes(report) == expected
    assert report.num_hidden == 3 - len(expected)


@pytest.mark.parametrize(("fail_on", "expected"), [("never", 0), ("P0", 0), ("P1", 1), ("P2", 1), ("P3", 1), ("P4", 1)])
def test_the_exit_code_follows_the_threshold(fail_on: str, expected: int) -> None:
    assert exit_code_of(REPORT, Config(fail_on=fail_on), flags()) == expected


@pytest.mark.parametrize("severity", Severity)
def test_a_finding_at_the_threshold_fails_and_one_below_does_not(severity: Severity) -> None:
    report = Report(findings=[a_finding(severity=severity)])
    failing = [name for name in ("P0", "P1", "P2", "P3", "P4") if exit_code_of(report, Config(fail_on=name), flags())]
    assert failing == [s.name for s in Severity if s >= severity]


def test_no_finding_never_fails() -> None:
    assert exit_code_of(Report(findings=[]), Config(fail_on="P4"), flags()) == 0


def test_known_findings_are_counted_and_never_fail(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", FINDINGS[:2])
    config = Config(baseline=str(tmp_path / "b.json"), fail_on="P2")
    report = select_findings(REPORT, config, flags())
    assert (codes(report), report.num_known) == (["TT101"], 2)
    assert exit_code_of(report, config, flags()) == 0


def test_a_new_finding_fails_beside_known_ones(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", FINDINGS[1:])
    config = Config(baseline=str(tmp_path / "b.json"), fail_on="P2")
    assert exit_code_of(select_findings(REPORT, config, flags()), config, flags()) == 1


def test_updating_the_baseline_accepts_the_current_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.json"
    config = Config(baseline=str(path), fail_on="P4")
    report = select_findings(REPORT, config, flags(update_baseline=True))
    assert (codes(report), report.num_known, exit_code_of(report, config, flags())) == ([], 3, 0)
    assert read_baseline(path) == {"a", "b", "c"}
    assert capsys.readouterr().err == f"torchtriage: 3 findings accepted in {path}\n"


def test_updating_the_baseline_drops_fixed_findings(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", [a_finding(fingerprint="cured")])
    select_findings(REPORT, Config(baseline=str(tmp_path / "b.json")), flags(update_baseline=True))
    assert "cured" not in read_baseline(tmp_path / "b.json")


def test_updating_the_baseline_needs_a_file() -> None:
    with pytest.raises(CommandError, match="--update-baseline needs a file to write; add --baseline FILE"):
        select_findings(REPORT, Config(), flags(update_baseline=True))


def test_a_missing_baseline_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no baseline at"):
        select_findings(REPORT, Config(baseline=str(tmp_path / "none.json")), flags())


def test_selection_leaves_the_rest_of_the_report_unchanged() -> None:
    report = Report(
        findings=FINDINGS, run={"argv": ["x"]}, watched=taps("trace"), totals={"compiles": 3}, num_suppressed=2
    )
    shown = select_findings(report, Config(select=("TT9",)), flags())
    assert (shown.run, shown.watched, shown.totals, shown.num_suppressed) == (
        report.run,
        report.watched,
        report.totals,
        2,
    )


def test_findings_go_to_stdout_and_messages_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT, Config(), flags(), next_command="torchtriage report x")
    say(flags(), "recording into x")
    captured = capsys.readouterr()
    assert captured.out.startswith("TT301 P1  ")
    assert captured.err == "torchtriage: recording into x\n"


def test_quiet_leaves_only_findings(capsys: pytest.CaptureFixture[str]) -> None:
    say(flags(quiet=True), "recording into x")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("format_", "name", "is_json"), [
    (None, None, False), ("json", None, True), (None, "out.json", True), (None, "out.txt", False), (None, "out", False),
    ("json", "out.txt", True), ("text", "out.json", False),
])
def test_the_format_follows_the_flag_or_the_extension(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str | None, name: str | None, is_json: bool,
) -> None:
    path = tmp_path / name if name else None
    show(REPORT, Config(format=format_), flags(), path=str(path) if path else None)
    text = path.read_text() if path else capsys.readouterr().out
    if is_json:
        assert json.loads(text)["schema"] == 1
    else:
        assert text.startswith("TT301 P1  ")


def test_an_existing_file_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("mine")
    with pytest.raises(CommandError, match="exists; overwrite it with --force"):
        show(REPORT, Config(), flags(), path=str(path))
    assert path.read_text() == "mine"
    show(REPORT, Config(), flags(force=True), path=str(path))
    assert path.read_text() != "mine"


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot write .*: No such file or directory"):
        show(REPORT, Config(), flags(), path=str(tmp_path / "none" / "out.txt"))


def test_a_file_never_has_colours(tmp_path: Path) -> None:
    show(REPORT, Config(color="always"), flags(), path=str(tmp_path / "out.txt"))
    assert "\x1b" not in (tmp_path / "out.txt").read_text()


@pytest.mark.parametrize(("color", "environ", "is_tty", "expected"), [
    ("auto", {}, True, True),
    ("auto", {}, False, False),
    ("auto", {"NO_COLOR": "1"}, True, False),
    ("auto", {"FORCE_COLOR": "1"}, False, True),
    ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ("auto", {"NO_COLOR": ""}, True, True),
    ("always", {"NO_COLOR": "1"}, False, True),
    ("never", {"FORCE_COLOR": "1"}, True, False),
])
def test_colour_follows_the_setting_the_environment_and_the_tty(
    color: str, environ: dict[str, str], is_tty: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_tty)
    assert wants_colour(Config(color=color)) is expected


def test_a_code_without_a_rule_is_rejected() -> None:
    with pytest.raises(CommandError, match="no rule begins with 'TT77'"):
        check_rules_exist(Config(select=("TT1",), ignore=("TT77",)))


def test_an_unusable_baseline_setting_is_rejected_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no baseline at"):
        check_gate(Config(baseline=str(tmp_path / "none.json")), flags())
    with pytest.raises(CommandError, match="add --baseline FILE"):
        check_gate(Config(), flags(update_baseline=True))
    check_gate(Config(baseline=str(tmp_path / "new.json")), flags(update_baseline=True))


def test_a_gate_that_fails_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(REPORT, Config(fail_on="P2"), flags()) == 1
    assert capsys.readouterr().err == "torchtriage: failed: 2 findings at P2 or worse\n"
