"""`check` finds the real problems of the seeds, and each kind of problem in tickets and reports made by hand."""

import datetime
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tickets.samples import REPORT, TICKETS, seed
from torchtriage.findings.model import Category
from torchtriage.tickets.checks import check
from torchtriage.tickets.checks.check import NOTES, read_report
from torchtriage.tickets.checks.code import SourceText, find_file, squeeze
from torchtriage.tickets.checks.ticket import garbled_word
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.model import Box, Problem, Relation, Review, Status, Ticket

TODAY = datetime.date(2026, 1, 1)


def a_ticket(number: int = 1, **fields: Any) -> TicketFile:
    ticket = Ticket(**{
        "id": f"B7-PT-{number:02}", "title": f"Title {number}", "batch": "7", "created": "2025-12-01",
        "updated": "2025-12-02", **fields,
    })
    return TicketFile(path=Path(f"{number}.md"), ticket=ticket)


def problems_of(*files: TicketFile, reports: tuple[Path, ...] = (), root: Path = Path("/nowhere")) -> list[Problem]:
    return check.check(files, [read_report(path) for path in reports], root, TODAY)


def kinds(*files: TicketFile, **where: Any) -> list[str]:
    return [problem.kind for problem in problems_of(*files, **where) if problem.kind not in NOTES]


@pytest.fixture(scope="module")
def in_seeds() -> list[Problem]:
    return problems_of(*map(seed, TICKETS), reports=(REPORT,))


def test_exactly_the_real_problems_of_the_seeds_are_reported(in_seeds: list[Problem]) -> None:
    lines = REPORT.read_text().split("\n")

    def where(problem: Problem) -> str:
        return lines[(problem.line or 0) - 1][:24] if problem.path == str(REPORT) else problem.path

    assert sorted((problem.kind, where(problem)) for problem in in_seeds) == [
        ("count-mismatch", "## Severity Summary"),
        ("count-mismatch", "| **P4** | 7 | Unused co"),
        ("date-year-apart", "B8-PT-06.md"),
        ("file-missing", "/nowhere"),
        ("mojibake", "B5-PT-06.md"),
        ("risk-severity", "| Graph breaks in debug "),
        ("too-few-named", "| **P2** | 6 | B7-GC-01:"),
        ("two-ids", "| B7-DT-01 | debug_telem"),
        ("two-severities", "| B7-DT-01 | debug_telem"),
        ("wrong-priority", "4. **Wire up `training_p"),
        ("wrong-priority", "5. **Integrate `check_gr"),
    ]


@pytest.mark.parametrize("words", [
    "the severity summary counts 7 P4, the detailed table has 8 rows "
    "(B7-AD-01, B7-EM-03, B7-GC-04, B7-GE-02, B7-IN-01, B7-LH-03",
    "the severity summary adds up to 20 findings, the detailed table has 21",
    "the severity summary counts 6 P2 but names 5; name B7-DT-01 too",
    "B7-DT-01 is P2 here, but P4 in ticket B7-PT-07 in B7-PT-07.md "
    "(the same finding: same file debug_telemetry.py, lines 79-95",
    "are the same finding under two IDs",
    "is under 'Medium Priority (P3)', but is about B7-PR-01 (P2), B7-IN-01 (P4); move it to its priority",
    "is under 'Medium Priority (P3)', but is about B7-AD-01 (P4)",
    "B8-PT-06 is dated 2025-12-27, but tickets from the same folder docs/temp/2712reports/ are dated 2024-12-27 "
    "(B5-PT-06, B7-PT-07)",
    "'(CPUâ†’GPU)' was probably '(CPU→GPU)'",
    "the risk 'Graph breaks in debug telemetry' is P3, but it is about B7-PT-07 (P4)",
])
def test_messages_name_the_contradiction(in_seeds: list[Problem], words: str) -> None:
    assert sum(words in problem.message for problem in in_seeds) == 1


def test_problems_are_sorted_by_path_and_line(in_seeds: list[Problem]) -> None:
    assert in_seeds == sorted(in_seeds, key=lambda problem: (problem.path, problem.line or 0))


def test_a_valid_ticket_has_no_problem() -> None:
    related = (Relation(ticket_id="B9-XX-99"),)     # a related ticket may have no file
    reviews = (Review(role="A", verdict="REFINE"),)
    assert kinds(a_ticket(related=related, verification=(Box(text="x"),), reviews=reviews)) == []


@pytest.mark.parametrize(("fields", "kind", "words"), [
    ({"status": "opne"}, "unknown-status", "did you mean open?"),
    ({"status": "done"}, "unknown-status", "use one of open, investigating"),
    ({"severity": "P5"}, "unknown-severity", "use one of P0, P1, P2, P3, P4"),
    ({"reviews": (Review(role="A", verdict="ENDORSED"),)}, "unknown-verdict", "did you mean ENDORSE?"),
    ({"verification": (Box(text="a", is_ticked=True),)}, "stale-status",
     "every verification box is ticked; set it to fixed or closed"),
    ({"status": "fixed", "verification": (Box(text="a"),)}, "stale-status", "1 of 1 verification boxes are not ticked"),
    ({"created": "2025-12-03"}, "date-order",
     "the updated date is 2025-12-02, before the ticket was created (2025-12-03)"),
    ({"updated": "2026-01-02"}, "date-in-future", "after today (2026-01-01)"),
    ({"updated": "27.12.2025"}, "date-unreadable", "must have the form YYYY-MM-DD, got '27.12.2025'"),
    ({"reviews": (Review(role="A", verdict="ENDORSE", date="2025-11-30"),)}, "date-order",
     "the date of a review is 2025-11-30"),
])
def test_a_problem_in_one_ticket_is_reported(fields: dict[str, Any], kind: str, words: str) -> None:
    problems = problems_of(a_ticket(**fields))
    assert [problem.kind for problem in problems] == [kind]
    assert words in problems[0].message


@pytest.mark.parametrize("fields", [
    {"status": "Open"}, {"status": Status.WONT_FIX, "verification": (Box(text="a"),)}, {"created": "", "updated": ""},
    {"status": "in-review", "verification": (Box(text="a", is_ticked=True),)},
    {"created": "2026-01-01", "updated": "2026-01-01"},
])
def test_valid_variants_are_not_reported(fields: dict[str, Any]) -> None:
    assert kinds(a_ticket(**fields)) == []


def test_a_problem_has_the_line_of_its_field() -> None:
    file = seed("B7-PT-07")
    file = replace(file, ticket=file.ticket.with_(status="opne"))
    assert str(problems_of(file)[-1]).startswith("B7-PT-07.md:11: B7-PT-07 has the unknown status 'opne'")


def test_checking_does_not_read_a_ticket_again(monkeypatch: pytest.MonkeyPatch, in_seeds: list[Problem]) -> None:
    files, report_file = [seed(name) for name in TICKETS], read_report(REPORT)

    def read_again(lines: object) -> None:
        raise AssertionError("a ticket was read again")

    monkeypatch.setattr("torchtriage.tickets.files.read.ticket_sections", read_again)     # every reading calls it
    assert check.check(files, [report_file], Path("/nowhere"), TODAY) == in_seeds


def test_problems_of_the_reader_are_passed_on() -> None:
    conflict = Problem(path="1.md", line=3, kind="merge-conflict", message="x")
    file = a_ticket()
    assert problems_of(replace(file, problems=(conflict,))) == [conflict]


def dated(number: int, date: str, folder: str = "docs/r/") -> TicketFile:
    return a_ticket(number, created=date, updated=date, report_file=f"{folder}{number}.md", title=f"{number}")


def test_a_year_apart_is_reported_within_a_folder_without_dates_in_between() -> None:
    assert kinds(dated(1, "2024-12-27"), dated(2, "2024-12-27"), dated(3, "2025-12-27")) == ["date-year-apart"]
    assert kinds(dated(1, "2024-12-27"), dated(3, "2025-12-27", "docs/other/")) == []
    assert kinds(dated(1, "2024-12-27"), dated(3, "2025-12-28")) == []
    assert kinds(dated(1, "2024-12-27"), dated(2, "2025-06-01"), dated(3, "2025-12-27")) == []


def test_the_less_common_year_is_reported() -> None:
    problems = problems_of(dated(1, "2024-12-27"), dated(2, "2025-12-27"), dated(3, "2025-12-27"))
    assert [problem.path for problem in problems] == ["1.md"]


def twin(number: int, **fields: Any) -> TicketFile:
    return a_ticket(number, **{
        "files": ("src/a.py",), "lines": "10-20", "categories": frozenset({Category.COMPILE}),
        "summary": "dynamic layer count causes recompilation", **fields,
    })


def test_a_duplicate_is_reported_once_by_its_clearest_sign() -> None:
    assert kinds(a_ticket(1), a_ticket(2, id="B7-PT-01")) == ["duplicate-id"]
    assert kinds(a_ticket(1, fingerprint="f"), a_ticket(2, fingerprint="f")) == ["duplicate-fingerprint"]
    assert kinds(twin(1, fingerprint="f"), twin(2, fingerprint="f")) == ["duplicate-fingerprint"]
    assert kinds(twin(1, fingerprint="f"), twin(2, fingerprint="g")) == []
    assert kinds(twin(1), twin(2, lines="20-25")) == ["duplicate-finding"]
    assert kinds(*[twin(number) for number in range(1, 5)]) == ["duplicate-finding"] * 3


@pytest.mark.parametrize("fields", [
    {"lines": "21-25"}, {"files": ("src/b/a.py",)}, {"categories": frozenset({Category.TEST_GAP})},
    {"summary": "layer count is never logged"}, {"status": "closed"},
    {"related": (Relation(ticket_id="B7-PT-01", kind="duplicate"),)},
])
def test_different_or_related_tickets_are_not_duplicates(fields: dict[str, Any]) -> None:
    assert kinds(twin(1), twin(2, **fields)) == []


# Quoted code

CODE = '''import torch

def collect(model):
    stats = []
    for name, param in model.named_parameters():
        stats.append(torch.stack([
            param.norm(), param.mean(),
        ]))  # all on one device
    # one sync
    return torch.stack(stats).tolist()
'''


def quoting(code: str, lines: str = "6-8", **fields: Any) -> TicketFile:
    wrong = f"It does\n\n```python\n{code}\n```\n"
    return a_ticket(1, **{"files": ("/home/x/project/src/a.py",), "lines": lines, "wrong": wrong, **fields})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize("code", [
    "stats.append(torch.stack([\n    param.norm(), param.mean(),\n]))\n# ...\nreturn torch.stack(stats).tolist()",
    "stats.append(torch.stack([param.norm(), param.mean(),]))   # slow",
    "# in collect()\nstats.append(torch.stack([...]))",
    "for name, param in model.named_parameters():\n    ...\n    stats.append(torch.stack([",
    "def collect(...):\n    stats.append(torch.stack([",
])
def test_a_quote_may_be_wrapped_shortened_and_commented(project: Path, code: str) -> None:
    assert problems_of(quoting(code), root=project) == []


def test_code_that_is_not_in_the_file_is_reported_once(project: Path) -> None:
    problems = problems_of(quoting("stats.append(torch.stack([\nstats.flush()\nstats.close()\n"), root=project)
    assert [problem.kind for problem in problems] == ["code-not-in-file"]
    assert "not in src/a.py: 'stats.flush()' (and 1 more line)" in problems[0].message


def test_a_fence_without_language_is_a_quote_if_most_of_it_is_in_the_file(project: Path) -> None:
    wrong = "```\nstats = []\nfor name, param in model.named_parameters():\nstats.flush()\n```"
    assert kinds(a_ticket(files=("src/a.py",), wrong=wrong), root=project) == ["code-not-in-file"]


def test_moved_code_is_reported_with_its_new_line(project: Path) -> None:
    problems = problems_of(quoting("return torch.stack(stats).tolist()", lines="4-5"), root=project)
    assert [problem.kind for problem in problems] == ["lines-moved"]
    assert "gives lines 4-5, but the quoted code is now at src/a.py:10;" in problems[0].message


def test_a_quote_with_blank_lines_is_one_place(project: Path) -> None:
    code = "import torch\n\ndef collect(model):\n    # a list\n    stats = []"
    problems = problems_of(quoting(code, lines="30"), root=project)
    assert [problem.message.split(" is now ")[1] for problem in problems] == ["at src/a.py:1-4; correct the lines"]


def test_moved_lines_are_not_reported_for_missing_code(project: Path) -> None:
    assert kinds(quoting("import torch\ngone()", lines="9"), root=project) == ["code-not-in-file"]


def test_a_second_moved_place_is_reported_but_context_is_not(project: Path) -> None:
    both = "stats = []\n\nreturn torch.stack(stats).tolist()"
    assert kinds(quoting(both, lines="4, 20"), root=project) == ["lines-moved"]
    assert kinds(quoting(both, lines="4"), root=project) == []


@pytest.mark.parametrize("file", [
    quoting("gone()", status="fixed"), quoting("gone()", files=()),
    a_ticket(files=("src/a.py",), wrong="```text\ngone()\n```"),
    a_ticket(files=("src/a.py",), wrong="```\nGraph break: something\n```"),
    quoting("gone()", files=("src/a.py", "src/none.py")),
    a_ticket(files=("src/a.py",), wrong="At `b.py:3`:\n\n```\nx = 1\nstats = []\n```"),
    quoting("# only a comment\n..."),
    quoting("stats = []", lines=""), a_ticket(files=("src/a.py",)),
])
def test_quotes_that_cannot_be_compared_are_skipped(project: Path, file: TicketFile) -> None:
    assert kinds(file, root=project) == []


def test_missing_files_are_reported_in_one_note(project: Path) -> None:
    problems = problems_of(a_ticket(1, files=("x.py",)), a_ticket(2, files=("x.py", "y.py")), root=project)
    assert [problem.kind for problem in problems] == ["file-missing"]
    assert "2 files named by tickets are not below" in problems[0].message
    assert "x.py (B7-PT-01, B7-PT-02), y.py (B7-PT-02)" in problems[0].message


def test_a_path_of_another_machine_is_found_by_its_longest_suffix(project: Path) -> None:
    (project / "a.py").write_text("")
    assert find_file(project, "/home/x/project/src/a.py") == project / "src" / "a.py"
    assert find_file(project, "C:\\work\\src\\a.py") == project / "src" / "a.py"
    assert find_file(project, "../../elsewhere/a.py") == project / "a.py"
    (project.parent / "outside.py").write_text("")
    assert find_file(project, "../outside.py") is None
    assert find_file(project, "nul\0.py") is None
    assert find_file(project, "src") is None


@given(st.integers(1, 10), st.integers(0, 4), st.sampled_from(["", "    ", "\t"]))
def test_any_lines_of_a_file_are_found_at_their_position(start: int, more: int, indent: str) -> None:
    lines = CODE.split("\n")[start - 1: start + more]
    quote = "".join(squeeze(indent + line.replace(" = ", "=")) for line in lines)
    if quote:
        assert any(start - 1 < place.start <= start + more for place in SourceText(CODE).places(quote))


@pytest.mark.parametrize(("line", "was"), [
    ("| x | CPUâ†’GPU |", ("CPUâ†’GPU", "CPU→GPU")), ("donâ€™t", ("donâ€™t", "don’t")),
    ("50Â\xa0ms", ("50Â\xa0ms", "50\xa0ms")),
    ("cafÃ©", ("cafÃ©", "café")), ("« voilà » CAFÉ» naïve „Ä“ → 你好 ½", None), ("plain", None),
])
def test_garbled_words_are_distinguished_from_foreign_ones(line: str, was: tuple[str, str] | None) -> None:
    assert garbled_word(line) == was


# Reports

HEAD = "## Severity Summary\n\n| Severity | Count | Key Issues |\n|---|---|---|\n"
DETAILED = "\n## Detailed Findings Table\n\n| ID | File | Line | Severity | Issue |\n|---|---|---|---|---|\n"


def report(tmp_path: Path, text: str) -> tuple[Path, ...]:
    path = tmp_path / "report.md"
    path.write_text(text)
    return (path,)


def test_a_severity_without_a_count_is_reported(tmp_path: Path) -> None:
    text = HEAD + "| P1 | 1 | - |\n" + DETAILED + "| B1-A-01 | a.py | 1 | P1 | x |\n| B1-A-02 | a.py | 2 | P3 | y |\n"
    problems = problems_of(reports=report(tmp_path, text))
    assert [problem.message.split(";")[0] for problem in problems] == [
        "the severity summary adds up to 1 finding, the detailed table has 2",
        "the severity summary has no count for P3, the detailed table has 1 row",
    ]


def test_a_total_row_is_not_counted_twice(tmp_path: Path) -> None:
    text = HEAD + "| P1 | 1 | private API |\n| **Total** | 1 | |\n" + DETAILED + "| B1-A-01 | a.py | 1 | P1 | x |\n"
    assert problems_of(reports=report(tmp_path, text)) == []
    wrong = problems_of(reports=report(tmp_path, text.replace("| **Total** | 1", "| **Total** | 2")))
    assert [problem.message.split(";")[0] for problem in wrong] == [
        "the severity summary has a total of 2 findings, the detailed table has 1",
    ]


def test_the_two_tables_are_compared(tmp_path: Path) -> None:
    per_file = "## File-by-File Analysis\n\n### 1. a.py\n\n| ID | Severity | Location | Issue |\n|---|---|---|---|\n"
    per_file += "| B1-A-01 | P1 | L1-2 | x |\n| B1-A-02 | P2 | L5 | y |\n| B1-A-03 | P2 | - | z |\n"
    detailed = "| B1-A-01 | a.py | 1-3 | P2 | x |\n| B1-A-03 | b.py | - | P2 | z |\n"
    detailed += "| B1-A-04 | a.py | 9 | P2 | w |\n" * 2
    problems = problems_of(reports=report(tmp_path, per_file + DETAILED + detailed))
    assert sorted((problem.kind, problem.message[:7]) for problem in problems) == [
        ("duplicate-id", "B1-A-04"), ("row-differs", "B1-A-01"), ("row-differs", "B1-A-03"), ("row-missing", "B1-A-02"),
        ("row-missing", "B1-A-04"), ("row-missing", "B1-A-04"), ("two-severities", "B1-A-01"),
    ]


def test_missing_names_are_reported_only_if_findings_are_unnamed(tmp_path: Path) -> None:
    row = HEAD + "| P1 | 2 | B1-A-01: x |\n"
    assert kinds(reports=report(tmp_path, row)) == ["too-few-named"]
    with_table = row + DETAILED + "| B1-A-01 | a.py | 1 | P1 | x |\n"
    assert kinds(reports=report(tmp_path, with_table)) == ["count-mismatch"] * 2


def test_a_finding_named_under_another_severity_is_reported(tmp_path: Path) -> None:
    text = HEAD + "| P1 | 1 | B1-A-01: x |\n| P2 | 0 | B1-A-01: x |\n" + DETAILED + "| B1-A-01 | a.py | 1 | P1 | x |\n"
    assert kinds(reports=report(tmp_path, text)) == ["two-severities"]


RECOMMENDED = (
    DETAILED + "| B1-A-01 | a.py | 1-9 | P1 | `grad_norm()` overflows |\n"
    "| B1-A-02 | b.py | 4 | P4 | `Config.level` is never read |\n"
)


@pytest.mark.parametrize(("item", "kind"), [
    ("Fix B1-A-01 soon", ["wrong-priority"]), ("Fix B1-A-01 and B1-A-02", []),
    ("Use a sum in `grad_norm`", ["wrong-priority"]),
    ("Look at a.py L5", ["wrong-priority"]), ("Look at a.py L50", []), ("Read `level`", []), ("Use `torch.norm`", []),
    ("Write more", []),
    ("Drop `grad_norm()` and `level`", []), ("Rename `norm_grad`", []),
])
def test_a_recommendation_is_checked_only_if_its_finding_is_clear(tmp_path: Path, item: str, kind: list[str]) -> None:
    assert kinds(reports=report(tmp_path, f"{RECOMMENDED}\n## Recommendations\n\n### Low (P4)\n\n1. {item}\n")) == kind


def test_a_report_and_a_ticket_with_the_same_id_must_agree(tmp_path: Path) -> None:
    path = report(tmp_path, DETAILED + "| B7-PT-01 | a.py | 1 | P1 | x |\n")
    assert kinds(a_ticket(1, severity="P1"), reports=path) == []
    assert kinds(a_ticket(1, severity="P2"), reports=path) == ["two-severities"]


@pytest.mark.parametrize(("fields", "kind"), [
    ({}, ["two-ids"]), ({"severity": "P4"}, ["two-ids", "two-severities"]),
    ({"related": (Relation(ticket_id="B7-DT-01"),)}, []),
    ({"lines": "30"}, []), ({"files": ("x/c.py",)}, []), ({"batch": "6"}, []),
    ({"title": "Logs are lost", "summary": ""}, []),
])
def test_the_same_finding_under_two_ids_is_matched_by_file_lines_and_words(
    tmp_path: Path, fields: dict[str, Any], kind: list[str],
) -> None:
    row = "| B7-DT-01 | a.py | 10-20 | P2 | Dynamic tensor size may cause recompilation |\n"
    path = report(tmp_path, DETAILED + row)
    ticket = a_ticket(1, **{
        "severity": "P2", "files": ("/p/a.py",), "lines": "15", "title": "Dynamic tensor size and its recompilation",
        **fields,
    })
    assert kinds(ticket, reports=path) == kind


def test_similar_findings_with_separate_tickets_are_distinct(tmp_path: Path) -> None:
    title = "Dynamic tensor size causes recompilation"
    rows = "".join(f"| B7-PT-0{number} | a.py | 5 | P3 | {title} |\n" for number in (1, 2))
    fields: dict[str, Any] = {"files": ("/p/a.py",), "lines": "5", "title": title}
    assert kinds(a_ticket(1, **fields), a_ticket(2, **fields), reports=report(tmp_path, DETAILED + rows)) == []


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    path = report(tmp_path, f"\ufeff{HEAD}| P1 | 2 | - |\n{DETAILED}| B1-A-01 | a.py | 1 | P1 | x |\n")
    assert kinds(reports=path) == ["count-mismatch"] * 2


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", None])
def test_an_unreadable_report_is_reported(tmp_path: Path, raw: bytes | None) -> None:
    path = tmp_path / "report.md"
    if raw is not None:
        path.write_bytes(raw)
    problems = problems_of(reports=(path,))
    assert [(problem.kind, problem.path) for problem in problems] == [("report-unreadable", str(path))]


def test_every_kind_of_problem_is_documented() -> None:
    sources = Path(check.__file__).parent.glob("*.py")
    used = {kind for source in sources for kind in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source.read_text())}
    assert len(used) >= 15
    assert not {kind for kind in used if not re.search(rf"^\|.*\b{kind}\b", check.__doc__ or "", re.MULTILINE)}
