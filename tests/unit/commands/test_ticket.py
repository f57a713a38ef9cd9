"""`torchtriage ticket`: what it prints, what it writes, its exit codes."""

import datetime
import json
import shutil
from pathlib import Path

import pytest

from tests.unit.tickets.samples import REPORT, SEEDS, TICKETS, seed_text
from torchtriage.commands.main import main

TODAY = datetime.date.today().isoformat()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the three seed tickets in the default folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHTRIAGE_TICKETS", raising=False)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "docs" / "findings").mkdir(parents=True)
    for name in TICKETS:
        shutil.copy(SEEDS / f"{name}.md", tmp_path / "docs" / "findings")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["ticket", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def text_of(project: Path, name: str) -> str:
    return (project / "docs" / "findings" / f"{name}.md").read_text()


def test_the_list_is_one_line_a_ticket_the_worst_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "list") == (0, (
        "B5-PT-06  P3  open  normalization.py:71-72, 131-132       Auto Device Migration Triggers Graph Breaks\n"
        "B8-PT-06  P3  open  parallel_env_state.py:73-74, 131-137  Tuple Keys in Dicts May Cause torch.compile Graph Breaks\n"
        "B7-PT-07  P4  open  debug_telemetry.py:79-95              Dynamic Tensor Size May Cause Recompilation\n"
    ), "torchtriage: 3 of 3 tickets in docs/findings\n")


@pytest.mark.parametrize(("flags", "ids"), [
    (["--severity", "P4"], ["B7-PT-07"]), (["--severity", "p3,P4"], ["B5-PT-06", "B8-PT-06", "B7-PT-07"]), (["--status", "closed"], []),
])
def test_the_list_can_be_narrowed(project: Path, capsys: pytest.CaptureFixture[str], flags: list[str], ids: list[str]) -> None:
    _, out, _ = said(capsys, "list", *flags, "--format", "json")
    assert [ticket["id"] for ticket in json.loads(out)] == ids


def test_the_json_form_holds_every_field(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "show", "b8-pt-06", "--format", "json")
    ticket = json.loads(out)
    assert ticket["related"][0]["ticket_id"] == "B8-PT-05"
    assert (ticket["categories"], ticket["path"]) == (["torch.compile compatibility"], "docs/findings/B8-PT-06.md")


def test_show_prints_the_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "show", "B7-PT-07") == (0, seed_text("B7-PT-07"), "torchtriage: docs/findings/B7-PT-07.md\n")


def test_set_changes_these_fields_and_the_date(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "set", "B7-PT-07", "B5-PT-06", "--status", "In-Review", "--severity", "p1", "--assignee", "Ada")
    assert (status, out) == (0, "")
    expected = seed_text("B7-PT-07").replace("`open`", "`in-review`").replace("`P4`", "`P1`")
    expected = expected.replace("| **Assignee** | |", "| **Assignee** | Ada |").replace("Updated** | 2024-12-27", f"Updated** | {TODAY}")
    assert text_of(project, "B7-PT-07") == expected


def test_set_to_what_it_is_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "set", "B7-PT-07", "--status", "open") == (0, "", "torchtriage: B7-PT-07 is so already\n")
    assert text_of(project, "B7-PT-07") == seed_text("B7-PT-07")


def test_if_one_ticket_is_not_there_none_is_changed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "set", "B7-PT-07", "B9-XX-01", "--status", "closed")[0] == 2
    assert text_of(project, "B7-PT-07") == seed_text("B7-PT-07")


def test_review_adds_a_section_with_todays_date(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["review", "B8-PT-06", "--reviewer", "Ada", "--role", "DRL Specialist", "--verdict", "object", "--evaluation", "No | never."]
    assert said(capsys, *words)[0] == 0
    assert (
        "## Cross-Review (DRL Specialist)\n\n| Field | Value |\n|-------|-------|\n| **Verdict** | `OBJECT` |\n| **Reviewer** | Ada |\n"
        f"| **Date** | {TODAY} |\n\n**Evaluation:** No | never.\n\n---\n\n## Appendix\n"
    ) in text_of(project, "B8-PT-06")


def test_new_by_hand_goes_on_with_the_newest_batch(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["new", "--title", "Loss is NaN", "--severity", "P0", "--file", "a.py", "--lines", "3-4", "--function", "f",
             "--category", "num", "--category", "correctness bug", "--agent", "pytorch", "--domain", "loss"]
    assert said(capsys, *words)[:2] == (0, "created   B8-PT-07  P0  docs/findings/B8-PT-07-loss-is-nan.md\n")
    _, out, _ = said(capsys, "show", "B8-PT-07", "--format", "json")
    ticket = json.loads(out)
    assert (ticket["categories"], ticket["created"], ticket["batch"]) == (["correctness bug", "numerical stability"], TODAY, "8")
    assert said(capsys, "new", "--title", "x", "--batch", "3")[1].startswith("created   B3-CR-01  P3 ")


@pytest.mark.parametrize(("words", "message"), [
    (["new"], "give either a recording, trace or log, or --title"),
    (["new", "x.triage"], "nothing at x.triage"),
    (["new", ".", "--lines", "3"], "--lines is for a ticket by hand; leave out ., or --lines"),
    (["new", "--title", "x", "--batch", "-1"], "--batch must be a number from 0, got -1"),
    (["new", "--title", "x", "--severity", "P9"], "--severity cannot be 'P9'; valid: P0, P1, P2, P3, P4"),
    (["new", "--title", "x", "--category", "torch.compil compat"], "did you mean 'torch.compile compatibility'?"),
    (["set", "B7-PT-07"], "nothing to set"),
    (["set", "B7-PT-07", "--status", "clsed"], "--status cannot be 'clsed'; did you mean 'closed'?"),
    (["set", "B7-PT-08", "--status", "closed"], "no ticket B7-PT-08 in docs/findings; did you mean B7-PT-07?"),
    (["review", "B7-PT-07", "--reviewer", "a", "--evaluation", "b", "--verdict", "endorsed"], "did you mean 'ENDORSE'?"),
    (["list", "--status", "opn"], "did you mean 'open'?"),
    (["check", "nothere.md"], "no report at nothere.md"),
    (["report", "--batch", "99"], "no ticket belongs to batch 99"),
    (["list", "--folder", "pyproject.toml"], "pyproject.toml is no folder"),
])
def test_wrong_use_is_exit_2_with_what_to_do(project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    status, out, err = said(capsys, *words)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_the_folder_comes_from_the_flag_then_the_configuration(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "docs" / "findings").rename(project / "tickets")
    assert said(capsys, "list")[1] == ""
    assert said(capsys, "list", "--folder", "tickets")[1].count("\n") == 3
    (project / "pyproject.toml").write_text('[tool.torchtriage]\ntickets = "tickets"\n')
    assert said(capsys, "list")[1].count("\n") == 3


def test_the_folder_is_found_from_below_the_project(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    assert said(capsys, "list")[1].count("\n") == 3


def test_damaged_files_are_named_on_stderr_and_the_others_listed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "docs" / "findings" / "x.md").write_bytes(b"\x00\xff")
    status, out, err = said(capsys, "list")
    assert (status, out.count("\n")) == (0, 3)
    assert "torchtriage: docs/findings/x.md: cannot be read: it is not UTF-8 text\n" in err


def test_check_finds_what_is_wrong_and_exits_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(REPORT, project / "docs" / "findings")
    status, out, _ = said(capsys, "check")
    assert status == 1
    assert "[count-mismatch]" in out
    assert "[two-severities]" in out
    status, out, _ = said(capsys, "check", "--format", "json")
    assert {"path", "line", "kind", "message"} == set(json.loads(out)[0])


def test_check_of_sound_tickets_exits_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("B5-PT-06", "B8-PT-06"):
        (project / "docs" / "findings" / f"{name}.md").unlink()
    assert said(capsys, "check")[0] == 0


def test_check_names_a_file_that_cannot_be_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "docs" / "findings" / "x.md").write_bytes(b"\x00\xff")
    status, out, _ = said(capsys, "check")
    assert status == 1
    assert "docs/findings/x.md: cannot be read: it is not UTF-8 text [unreadable]\n" in out


def test_report_is_written_and_written_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "report")[1].startswith("# Batch 8 ")
    assert said(capsys, "report", "--batch", "7", "-o", "b7.md") == (0, "", "torchtriage: wrote b7.md\n")
    written = (project / "b7.md").read_text()
    (project / "b7.md").write_text(written.replace("**Purpose:** Nothing written yet.", "**Purpose:** Mine."))
    said(capsys, "set", "B7-PT-07", "--severity", "P2")
    assert said(capsys, "report", "--batch", "7", "-o", "b7.md")[0] == 0
    again = (project / "b7.md").read_text()
    assert "**Purpose:** Mine." in again
    assert "| P2 |" in again


def test_import_takes_tickets_and_reports_and_leaves_what_is_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(project / "docs")
    status, out, _ = said(capsys, "import", *(str(SEEDS / f"{name}.md") for name in TICKETS), str(REPORT))
    assert (status, out.count("imported")) == (0, 24)
    status, out, err = said(capsys, "import", str(SEEDS / "B7-PT-07.md"))
    assert (status, out) == (2, "")
    assert "B7-PT-07 is there already" in err
