"""`torchtriage review`: the batch report, the tickets, and what a second review leaves unchanged."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.lint import review_source_folder
from torchtriage.commands.main import main
from torchtriage.commands.ticket.review import parameters_in
from torchtriage.errors import CommandError
from torchtriage.tickets.batches.parse import parse_batch
from torchtriage.tickets.files.store import open_store

WORDS = ("review", "pulse", "tests", "--batch", "7", "--domain", "pulse/signals", "--parameters", "100M")
REPORT = "docs/findings/batch-7-review.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source with the flaws of a reviewed system."""
    shutil.copytree(review_source_folder(), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHTRIAGE_TICKETS", raising=False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def state_of(project: Path) -> dict[str, str]:
    return {str(path.relative_to(project)): path.read_text() for path in sorted(project.rglob("*.md"))}


def test_it_writes_a_ticket_per_finding_and_a_report_that_agrees(
    project: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = run(capsys, *WORDS)
    assert (status, err) == (0, "torchtriage: 24 tickets created\n")
    assert out.count("created   B7-TT-") == 24
    assert out.endswith(f"wrote     {REPORT}\n")
    report = parse_batch((project / REPORT).read_text())
    tickets = {file.ticket.id: file.ticket for file in open_store(project / "docs" / "findings").files}
    assert {row.id: (row.severity, row.lines, row.rule[:2]) for row in report.findings} == {
        ticket.id: (ticket.severity, ticket.lines, "TT") for ticket in tickets.values()
    }
    counts = Counter(ticket.severity for ticket in tickets.values())
    assert {row.severity: row.count for row in report.severity_rows} == {f"P{n}": counts[f"P{n}"] for n in range(5)}
    assert {ticket.domain for ticket in tickets.values()} == {"pulse/signals"}
    assert all(ticket.verification and ticket.fix and ticket.categories for ticket in tickets.values())
    assert run(capsys, "ticket", "check")[:2] == (0, "")


def test_the_report_has_the_facts_of_the_source(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *WORDS)
    text = (project / REPORT).read_text()
    report = parse_batch(text)
    assert len(report.files) == 15      # the test file is read, and not reviewed
    assert next(a.purpose for a in report.analyses if a.file == "reporting.py") == (
        "Sends what an update measured to the hub."
    )
    assert "torch.cat([slope.view(-1) for slope in found]): one tensor of all of them, 400 MB (temporary)" in text
    assert "| SlopeAverages | no test names this class, and it saves and loads its state (averages.py:7) |" in text
    versions = {row.cells["feature"]: row.cells["minimum version"] for row in report.versions}
    assert versions["`torch.inference_mode`"] == "1.9"
    assert "`torch.stack`" not in versions
    assert "**B7-TT-01: g.float()" not in text      # the title has no ID where the table has a column for it
    assert "**g.float() * g.float() overflows to inf for large gradients:**" in text


def test_a_second_review_changes_no_byte(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *WORDS)
    before = state_of(project)
    assert run(capsys, *WORDS)[1] == f"unchanged {REPORT}\n"
    assert run(capsys, *(word for word in WORDS if word not in ("--batch", "7")))[1] == f"unchanged {REPORT}\n"
    assert state_of(project) == before


def test_prose_of_people_is_kept_and_numbers_follow(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *WORDS)
    path = project / REPORT
    text = path.read_text().replace("**Key Strengths:** Nothing written yet.", "**Key Strengths:** one read per step")
    prose = "Mine.\n\n## An extra chapter\n\nToo."
    text = text.replace("## Conclusion\n\nNothing written yet.", f"## Conclusion\n\n{prose}")
    path.write_text(text)
    main(["ticket", "set", "B7-TT-24", "--severity", "P0", "--status", "fix-in-progress"])
    source = project / "pulse" / "signals" / "reporting.py"
    source.write_text(source.read_text() + "\n\ndef unused_norm(net):\n    return sum(net.parameters())\n")
    run(capsys, *WORDS)
    again = path.read_text()
    assert "**Key Strengths:** one read per step" in again
    assert prose in again
    assert "| P0 | 1 | B7-TT-24: " in again
    assert "unused_norm" in again
    assert run(capsys, "ticket", "check")[0] == 0


def test_ticket_report_leaves_what_only_a_review_knows(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *WORDS)
    before = (project / REPORT).read_text()
    assert run(capsys, "ticket", "report", "--batch", "7", "-o", REPORT)[0] == 0
    assert (project / REPORT).read_text() == before
    main(["ticket", "set", "B7-TT-01", "--severity", "P0"])
    run(capsys, "ticket", "report", "--batch", "7", "-o", REPORT)
    after = (project / REPORT).read_text()
    assert "| P0 | 1 |" in after
    assert "400 MB (temporary)" in after


def test_imported_again_the_report_gives_the_same_tickets(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *WORDS)
    made = {file.ticket.id: file.ticket for file in open_store(project / "docs" / "findings").files}
    assert run(capsys, "ticket", "import", REPORT) == (
        0, "", f"torchtriage: {REPORT}: every finding has its ticket, nothing was imported\n",
    )
    status, out, _ = run(capsys, "ticket", "import", REPORT, "--folder", "copies")
    assert (status, out.count("imported")) == (0, 24)
    copies = {file.ticket.id: file.ticket for file in open_store(project / "copies").files}
    for field in ("title", "severity", "lines", "files", "categories", "agent", "batch", "domain"):
        assert {i: getattr(t, field) for i, t in copies.items()} == {i: getattr(t, field) for i, t in made.items()}
    assert all(made[each].fix in copies[each].fix for each in made)
    assert run(capsys, "ticket", "check", "--folder", "copies")[0] == 0


def test_a_new_finding_gets_a_section_and_the_next_number(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *WORDS)
    (project / "pulse" / "learner" / "loop.py").write_text(
        '"""The training loop."""\n\nimport torch\n\n\n@torch.compile\ndef forward(x):\n    print("mean", x.mean())\n'
        "    return x\n\n\nforward(torch.ones(3))\n"
    )
    _, out, _ = run(capsys, *WORDS)
    assert "created   B7-TT-25" in out
    report = parse_batch((project / REPORT).read_text())
    assert "loop.py" in {each.file for each in report.analyses}
    assert run(capsys, "ticket", "check")[0] == 0


def test_nothing_found_no_docstring_and_no_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "plain.py").write_text("x = 1\n")
    (tmp_path / "app" / "broken.py").write_text("def broken(:\n")
    status, out, err = run(capsys, "review", "app")
    assert (status, out) == (0, "wrote     docs/findings/batch-1-review.md\n")
    assert "broken.py: does not parse: line 1" in err
    text = (tmp_path / "docs" / "findings" / "batch-1-review.md").read_text()
    for sentence in (
        "No finding has a ticket of this batch.", "- `app/broken.py` does not parse: line 1: invalid syntax",
        "| plain.py | The file has no docstring. | - |", "The reviewed files name nothing of torch.",
        "No call that allocates with the parameters of a model was found.", "Total: 0 findings.",
        "Names without tests are unknown", "The source has 0 calls of torch.compile. No finding concerns",
    ):
        assert sentence in text
    assert run(capsys, "ticket", "check")[0] == 0


def test_a_handwritten_report_is_not_overwritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.md").write_text("# Mine\n")
    status, _, err = run(capsys, *WORDS, "-o", "mine.md")
    assert status == 2
    assert "this report was written by hand" in err
    assert (project / "mine.md").read_text() == "# Mine\n"


@pytest.mark.parametrize(("text", "number"), [("100M", 10**8), ("1.5b", 15 * 10**8), ("125_000", 125_000), ("7", 7)])
def test_a_model_size_has_a_unit_or_none(text: str, number: int) -> None:
    assert parameters_in(text) == number


@pytest.mark.parametrize("text", ["", "many", "-3M", "0", "10X"])
def test_another_model_size_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--parameters must be a number such as 100M"):
        parameters_in(text)
