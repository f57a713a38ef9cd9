"""`torchtriage ticket`: its output, the files it writes, and its exit codes."""

import datetime
import json
import shutil
from pathlib import Path

import pytest

from tests.unit.tickets.runs.trees import MENDED, SICK, write_tree
from tests.unit.tickets.samples import REPORT, SEEDS, TICKETS, seed_text
from torchtriage.commands.main import main
from torchtriage.commands.ticket import shared
from torchtriage.tickets.markdown.lines import TextLine, scan

TODAY = "2025-06-07"


class _Calendar(datetime.date):
    @classmethod
    def today(cls) -> datetime.date:
        return datetime.date.fromisoformat(TODAY)


@pytest.fixture(autouse=True)
def _the_day_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of the tests may pass midnight."""
    monkeypatch.setattr(shared.datetime, "date", _Calendar)


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


def run_ticket(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["ticket", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def text_of(project: Path, name: str) -> str:
    return (project / "docs" / "findings" / f"{name}.md").read_text()


def test_list_prints_one_line_per_ticket_most_severe_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ticket(capsys, "list") == (0, (
        "B5-PT-06  P3  open  normalization.py:71-72, 131-132       Auto Device Migration Triggers Graph Breaks\n"
        "B8-PT-06  P3  open  parallel_env_state.py:73-74, 131-137  "
        "Tuple Keys in Dicts May Cause torch.compile Graph Breaks\n"
        "B7-PT-07  P4  open  debug_telemetry.py:79-95              Dynamic Tensor Size May Cause Recompilation\n"
    ), "torchtriage: 3 of 3 tickets in docs/findings\n")


@pytest.mark.parametrize(("flags", "ids"), [
    (["--severity", "P4"], ["B7-PT-07"]), (["--severity", "p3,P4"], ["B5-PT-06", "B8-PT-06", "B7-PT-07"]),
    (["--status", "closed"], []),
])
def test_list_filters_by_status_and_severity(
    project: Path, capsys: pytest.CaptureFixture[str], flags: list[str], ids: list[str],
) -> None:
    _, out, _ = run_ticket(capsys, "list", *flags, "--format", "json")
    assert [ticket["id"] for ticket in json.loads(out)] == ids


def test_the_json_form_contains_every_field(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run_ticket(capsys, "show", "b8-pt-06", "--format", "json")
    ticket = json.loads(out)
    assert ticket["related"][0]["ticket_id"] == "B8-PT-05"
    assert (ticket["categories"], ticket["path"]) == (["torch.compile compatibility"], "docs/findings/B8-PT-06.md")


def test_show_prints_the_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "docs/findings/B7-PT-07.md"
    assert run_ticket(capsys, "show", "B7-PT-07") == (0, seed_text("B7-PT-07"), f"torchtriage: {path}\n")


def test_set_changes_these_fields_and_the_date(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--status", "In-Review", "--severity", "p1", "--assignee", "Ada"]
    status, out, _ = run_ticket(capsys, "set", "B7-PT-07", "B5-PT-06", *flags)
    assert (status, out) == (0, "")
    expected = seed_text("B7-PT-07").replace("`open`", "`in-review`").replace("`P4`", "`P1`")
    expected = expected.replace("| **Assignee** | |", "| **Assignee** | Ada |")
    expected = expected.replace("Updated** | 2024-12-27", f"Updated** | {TODAY}")
    assert text_of(project, "B7-PT-07") == expected


def test_setting_the_current_value_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = "torchtriage: B7-PT-07: already set, nothing changed\n"
    assert run_ticket(capsys, "set", "B7-PT-07", "--status", "open") == (0, "", message)
    assert text_of(project, "B7-PT-07") == seed_text("B7-PT-07")


def test_no_ticket_is_changed_if_one_is_missing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ticket(capsys, "set", "B7-PT-07", "B9-XX-01", "--status", "closed")[0] == 2
    assert text_of(project, "B7-PT-07") == seed_text("B7-PT-07")


def test_review_adds_a_section_with_todays_date(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["review", "B8-PT-06", "--reviewer", "Ada", "--role", "DRL Specialist", "--verdict", "object",
             "--evaluation", "No | never."]
    assert run_ticket(capsys, *words)[0] == 0
    assert (
        "## Cross-Review (DRL Specialist)\n\n| Field | Value |\n|-------|-------|\n"
        f"| **Verdict** | `OBJECT` |\n| **Reviewer** | Ada |\n| **Date** | {TODAY} |\n"
        "\n**Evaluation:** No | never.\n\n---\n\n## Appendix\n"
    ) in text_of(project, "B8-PT-06")


def test_a_ticket_by_hand_continues_the_newest_batch(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["new", "--title", "Loss is NaN", "--severity", "P0", "--file", "a.py", "--lines", "3-4", "--function", "f",
             "--category", "num", "--category", "correctness bug", "--agent", "pytorch", "--domain", "loss"]
    assert run_ticket(capsys, *words)[:2] == (0, "created   B8-PT-07  P0  docs/findings/B8-PT-07-loss-is-nan.md\n")
    _, out, _ = run_ticket(capsys, "show", "B8-PT-07", "--format", "json")
    ticket = json.loads(out)
    assert ticket["categories"] == ["correctness bug", "numerical stability"]
    assert (ticket["created"], ticket["batch"]) == (TODAY, "8")
    assert run_ticket(capsys, "new", "--title", "x", "--batch", "3")[1].startswith("created   B3-CR-01  P3 ")


@pytest.mark.parametrize(("words", "message"), [
    (["new"], "give either a recording, trace or log, or --lint with paths, or --title"),
    (["new", "x.triage", "--lint", "src"], "give either a recording, trace or log, or --lint with paths, or --title"),
    (["new", "--lint", "nowhere"], "nothing at nowhere"),
    (["new", "--lint", ".", "--lines", "3"], "--lines is only for a ticket by hand; leave out --lint or --lines"),
    (["new", "x.triage"], "nothing at x.triage"),
    (["new", ".", "--lines", "3"], "--lines is only for a ticket by hand; leave out . or --lines"),
    (["new", "--title", "x", "--batch", "-1"], "--batch must be at least 0, got -1"),
    (["new", "--title", "x", "--severity", "P9"], "--severity cannot be 'P9'; valid: P0, P1, P2, P3, P4"),
    (["new", "--title", "x", "--category", "torch.compil compat"], "did you mean 'torch.compile compatibility'?"),
    (["set", "B7-PT-07"], "nothing to set"),
    (["set", "B7-PT-07", "--status", "clsed"], "--status cannot be 'clsed'; did you mean 'closed'?"),
    (["set", "B7-PT-08", "--status", "closed"], "no ticket B7-PT-08 in docs/findings; did you mean B7-PT-07?"),
    (["review", "B7-PT-07", "--reviewer", "a", "--evaluation", "b", "--verdict", "endorsed"],
     "did you mean 'ENDORSE'?"),
    (["list", "--status", "opn"], "did you mean 'open'?"),
    (["check", "nothere.md"], "no report at nothere.md"),
    (["report", "--batch", "99"], "no ticket belongs to batch 99"),
    (["list", "--folder", "pyproject.toml"], "pyproject.toml is not a folder"),
])
def test_wrong_usage_exits_2_with_a_hint(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str,
) -> None:
    status, out, err = run_ticket(capsys, *words)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_the_folder_comes_from_the_flag_then_the_configuration(
    project: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "docs" / "findings").rename(project / "tickets")
    assert run_ticket(capsys, "list")[1] == ""
    assert run_ticket(capsys, "list", "--folder", "tickets")[1].count("\n") == 3
    (project / "pyproject.toml").write_text('[tool.torchtriage]\ntickets = "tickets"\n')
    assert run_ticket(capsys, "list")[1].count("\n") == 3


def test_the_folder_is_found_from_a_subfolder_of_the_project(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    assert run_ticket(capsys, "list")[1].count("\n") == 3


def test_damaged_files_are_reported_on_stderr_and_the_others_listed(
    project: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "docs" / "findings" / "x.md").write_bytes(b"\x00\xff")
    status, out, err = run_ticket(capsys, "list")
    assert (status, out.count("\n")) == (0, 3)
    assert "torchtriage: docs/findings/x.md: cannot be read: it is not UTF-8 text\n" in err


def test_check_exits_1_if_it_finds_problems(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(REPORT, project / "docs" / "findings")
    status, out, _ = run_ticket(capsys, "check")
    assert status == 1
    assert "[count-mismatch]" in out
    assert "[two-severities]" in out
    status, out, _ = run_ticket(capsys, "check", "--format", "json")
    assert {"path", "line", "kind", "message"} == set(json.loads(out)[0])


def test_check_parses_a_report_once(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(REPORT, project / "docs" / "findings")
    texts: list[str] = []

    def counting_scan(text: str) -> tuple[list[TextLine], list[TextLine]]:
        texts.append(text)
        return scan(text)

    monkeypatch.setattr("torchtriage.tickets.batches.parse.scan", counting_scan)
    run_ticket(capsys, "check")
    assert texts.count(REPORT.read_text()) == 1


def test_check_exits_0_without_problems(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("B5-PT-06", "B8-PT-06"):
        (project / "docs" / "findings" / f"{name}.md").unlink()
    assert run_ticket(capsys, "check")[0] == 0


def test_check_reports_an_unreadable_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "docs" / "findings" / "x.md").write_bytes(b"\x00\xff")
    status, out, _ = run_ticket(capsys, "check")
    assert status == 1
    assert "docs/findings/x.md: cannot be read: it is not UTF-8 text [unreadable]\n" in out


def test_report_can_be_rewritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ticket(capsys, "report")[1].startswith("# Batch 8 ")
    assert run_ticket(capsys, "report", "--batch", "7", "-o", "b7.md") == (0, "", "torchtriage: wrote b7.md\n")
    written = (project / "b7.md").read_text()
    (project / "b7.md").write_text(written.replace("**Purpose:** Nothing written yet.", "**Purpose:** Mine."))
    run_ticket(capsys, "set", "B7-PT-07", "--severity", "P2")
    assert run_ticket(capsys, "report", "--batch", "7", "-o", "b7.md")[0] == 0
    again = (project / "b7.md").read_text()
    assert "**Purpose:** Mine." in again
    assert "| P2 |" in again


def test_import_reads_tickets_and_reports_and_overwrites_nothing(
    project: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.rmtree(project / "docs")
    status, out, _ = run_ticket(capsys, "import", *(str(SEEDS / f"{name}.md") for name in TICKETS), str(REPORT))
    assert (status, out.count("imported")) == (0, 24)
    status, out, err = run_ticket(capsys, "import", str(SEEDS / "B7-PT-07.md"))
    assert (status, out) == (2, "")
    assert "B7-PT-07 already exists" in err


def test_lint_confirms_the_tickets_that_people_wrote(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(project, SICK)
    status, out, _ = run_ticket(capsys, "new", "--lint", "src")
    confirmed = [line for line in out.splitlines() if line.startswith("confirmed")]
    assert (status, [line.split()[1:3] for line in confirmed]) == (
        0, [["B5-PT-06", "TT738"], ["B7-PT-07", "TT737"], ["B8-PT-06", "TT736"]],
    )
    assert "created" not in out
    assert len(list((project / "docs" / "findings").iterdir())) == 3
    assert "confirmed by torchtriage lint: TT737 at src/esper" in text_of(project, "B7-PT-07")
    before = {name: text_of(project, name) for name in TICKETS}
    _, out, err = run_ticket(capsys, "new", "--lint", "src")
    assert "confirmed" not in out
    assert err == "torchtriage: no new findings\n"
    assert {name: text_of(project, name) for name in TICKETS} == before


def test_lint_ticks_the_boxes_that_the_source_proves(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(project, MENDED)
    status, out, _ = run_ticket(capsys, "new", "--lint", "src", "--select", "TT736,TT737,TT738")
    assert (status, out.count("ticked "), "confirmed" in out) == (0, 7, False)
    text = text_of(project, "B7-PT-07")
    assert text.count("- [x] ") == 4        # three boxes and the category
    assert 'torchtriage lint ticked "Optionally add @torch.compiler.disable decorator"' in text
    assert run_ticket(capsys, "new", "--lint", "src", "--select", "TT736")[1].count("ticked ") == 0


def test_a_doubtful_match_is_proposed_and_taken_only_if_asked(
    project: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    name = "src/esper/simic/control/normalization.py"
    write_tree(project, {"lib/normalization.py": SICK[name]})
    words = ["new", "--lint", "lib", "--select", "TT738"]
    status, out, err = run_ticket(capsys, *words)
    assert (status, out.splitlines()[0]) == (0, (
        "match?    B5-PT-06  TT738 at lib/normalization.py:15: same function, "
        'the ticket says "device migrat", but the folder is another one'
    ))
    assert "created" not in out
    assert err.endswith("torchtriage: 1 change proposed; apply with: torchtriage ticket new --lint lib --apply\n")
    assert text_of(project, "B5-PT-06") == seed_text("B5-PT-06")
    assert run_ticket(capsys, *words, "--apply")[1].startswith("confirmed B5-PT-06  TT738")
    assert "match?" not in run_ticket(capsys, *words)[1]


def test_a_doubtful_match_can_be_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(project, {"lib/normalization.py": SICK["src/esper/simic/control/normalization.py"]})
    words = ["new", "--lint", "lib", "--select", "TT738"]
    assert "created   B9-TT-01  P3 " in run_ticket(capsys, *words, "--no-match")[1]
    assert text_of(project, "B5-PT-06") == seed_text("B5-PT-06")
    _, out, _ = run_ticket(capsys, *words)
    assert "match?" not in out
    assert "created" not in out
