"""A batch report agrees with its tickets, marks the parts without text, and keeps every byte that a person wrote."""

import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tickets.samples import PIECES, REPORT, TICKETS, seed, tickets
from torchtriage.errors import TriageError
from torchtriage.findings.model import Category
from torchtriage.tickets.batches.parse import parse_batch
from torchtriage.tickets.batches.report import render_batch, split
from torchtriage.tickets.checks.check import check, read_report
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.model import Status, Ticket

TODAY = datetime.date(2026, 1, 1)


def a_ticket(number: int = 1, **fields: Any) -> Ticket:
    return Ticket(**{
        "id": f"B7-PT-{number:02}", "title": f"Title {number}", "batch": "7", "files": ("src/a.py",), "lines": "10-12",
        "summary": f"What {number}", "fix": f"Do {number}:\n\n```python\nx = 1\n```\n\nmore", "created": "2025-12-01",
        "updated": "2025-12-01", **fields,
    })


def files_of(*batch: Ticket) -> list[TicketFile]:
    return [TicketFile(path=Path(f"{number}.md"), ticket=ticket) for number, ticket in enumerate(batch)]


def three() -> list[TicketFile]:
    return files_of(
        a_ticket(1, severity="P2", categories=frozenset({Category.TEST_GAP}), function="Tracker"),
        a_ticket(2, severity="P4", files=("src/a.py", "src/b/__init__.py"), status="in-review", fix=""),
        a_ticket(
            10, severity="P2", categories=frozenset({Category.RESOURCE}), files=("src/c/__init__.py",), status="closed",
        ),
    )


def handwritten(text: str) -> list[str]:
    return [piece.text for piece in split(text) if not piece.key]


def test_a_new_report_has_every_section_of_the_seed() -> None:
    ours = re.findall(r"^## (.*)$", render_batch("7", three(), None), re.MULTILINE)
    assert ours == re.findall(r"^## (.*)$", REPORT.read_text(), re.MULTILINE)


def test_derived_parts_agree_with_the_tickets() -> None:
    report = parse_batch(render_batch("7", three(), None))
    assert report.files == ("src/a.py", "src/b/__init__.py", "src/c/__init__.py")
    assert report.summary == "3 findings in 3 files: 2 P2, 1 P4. Status: 1 open, 1 in-review, 1 closed."
    assert [analysis.file for analysis in report.analyses] == ["a.py", "b/__init__.py", "c/__init__.py"]
    assert [[row.id for row in analysis.findings] for analysis in report.analyses] == [
        ["B7-PT-01", "B7-PT-02"], ["B7-PT-02"], ["B7-PT-10"],
    ]
    assert [(row.severity, row.count, row.ids) for row in report.severity_rows if row.count] == [
        ("P2", 2, ("B7-PT-01", "B7-PT-10")), ("P4", 1, ("B7-PT-02",)),
    ]
    assert [(row.id, row.lines, row.severity) for row in report.findings] == [
        ("B7-PT-01", "10-12", "P2"), ("B7-PT-02", "10-12", "P4"), ("B7-PT-10", "10-12", "P2"),
    ]
    assert [risk.risk for risk in report.risks] == ["B7-PT-02: Title 2"]
    assert [row.cell("component") for row in report.missing_tests] == ["Tracker"]
    assert "B7-PT-10" in report.memory


def test_recommendations_list_unfinished_tickets_by_priority() -> None:
    recommendations = parse_batch(render_batch("7", three(), None)).recommendations
    assert [(item.heading, item.text) for item in recommendations] == [
        ("High Priority (P1-P2)", "**B7-PT-01:** Do 1"),
        ("Low Priority (P4)", "**B7-PT-02:** no fix is written in the ticket"),
    ]


def test_a_fix_with_options_is_summarized_by_them() -> None:
    recommendations = parse_batch(render_batch("8", [seed("B8-PT-06")], None)).recommendations
    options = "Option 1 - Use flat indices; Option 2 - Ensure access is outside compiled regions"
    assert [item.text for item in recommendations] == [f"**B8-PT-06:** {options}"]


def test_a_part_without_text_says_so() -> None:
    report = parse_batch(render_batch("7", three(), None))
    first = report.analyses[0]
    assert {report.focus, first.purpose, first.strengths, first.code_quality} == {"Nothing written yet."}
    assert not report.versions


def test_findings_are_sorted_by_number_and_no_text_hides_the_rest() -> None:
    odd = a_ticket(id="B7-PT-9", title="<!-- torchtriage: end -->\n| x", fix="<!-- a")
    text = render_batch("7", files_of(a_ticket(id="B7-PT-10"), odd), None)
    assert [row.id for row in parse_batch(text).findings] == ["B7-PT-9", "B7-PT-10"]
    assert len(text.split("<!--")) - len(text.split("\\<!--")) == len(text.split("\n<!-- torchtriage")) - 1


def test_a_report_contains_only_the_tickets_of_its_batch() -> None:
    text = render_batch("5", [seed(name) for name in TICKETS], None)
    assert [row.id for row in parse_batch(text).findings] == ["B5-PT-06"]
    assert render_batch("05", [seed(name) for name in TICKETS], None) == text
    with pytest.raises(TriageError, match=r"no ticket belongs to batch 6; there are tickets of 5, 7 and 8"):
        render_batch("6", [seed(name) for name in TICKETS], None)


def test_prose_is_kept_when_the_tickets_change() -> None:
    first = render_batch("7", three(), None)
    edited = first.replace("**Purpose:** Nothing written yet.", "**Purpose:** Mine, with | and <!-- a comment -->.", 1)
    edited = edited.replace("## Conclusion\n", "## My own\n\nkept\n\n## Conclusion\n\nA word before.\n")
    again = render_batch("7", files_of(a_ticket(1, severity="P0", title="New title")), edited)
    assert handwritten(again) == handwritten(edited)
    report = parse_batch(again)
    assert [(row.id, row.severity, row.issue) for row in report.findings] == [("B7-PT-01", "P0", "New title")]
    assert "No ticket of this batch names this file." in again
    assert [section.title for section in report.other] == ["My own"]


def test_a_new_file_gets_its_section_after_the_others() -> None:
    first = render_batch("7", three(), None)
    grown = render_batch("7", [*three(), *files_of(a_ticket(4, files=("src/new.py",)))], first)
    analyses = parse_batch(grown).analyses
    assert [analysis.file for analysis in analyses][-1] == "new.py"
    assert "### 4. new.py" in grown
    assert [row.id for row in analyses[-1].findings] == ["B7-PT-04"]
    without = grown[:grown.index("### 4. new.py")] + grown[grown.index("## Cross-Cutting"):]
    assert handwritten(without) == handwritten(first)


def test_a_removed_part_stays_removed() -> None:
    first = render_batch("7", three(), None)
    start, end = first.index("<!-- torchtriage: derived memory -->"), first.index("---\n\n## Severity Summary")
    without = first[:start] + first[end:]
    assert render_batch("7", three(), without) == without


def test_windows_line_endings_are_kept() -> None:
    first = render_batch("7", three(), None).replace("\n", "\r\n")
    again = render_batch("7", [*three(), *files_of(a_ticket(4, files=("src/new.py",)))], first)
    assert again.count("\n") == again.count("\r\n") > first.count("\n")


def test_a_handwritten_report_is_refused() -> None:
    message = r"written by hand .* write to another file, or put <!-- torchtriage: derived"
    with pytest.raises(TriageError, match=message):
        render_batch("7", [seed("B7-PT-07")], REPORT.read_text())


def test_one_table_of_a_handwritten_report_can_be_derived() -> None:
    by_hand = REPORT.read_text()
    start, end = by_hand.index("| Severity | Count"), by_hand.index("\n---\n\n## Detailed")
    marked = f"<!-- torchtriage: derived severity-summary -->\n{by_hand[start:end]}<!-- torchtriage: end -->\n"
    wrapped = by_hand[:start] + marked + by_hand[end:]
    report = render_batch("7", [seed("B7-PT-07")], wrapped)
    assert handwritten(report) == handwritten(wrapped)
    assert [row.count for row in parse_batch(report).severity_rows] == [0, 0, 0, 0, 1]
    assert len(parse_batch(report).findings) == 21


@pytest.mark.parametrize(("change", "says"), [
    (lambda text: text.replace("<!-- torchtriage: end -->", "", 1), "the derived part 'files' of line 7 has no end"),
    (lambda text: text[:text.rindex("<!-- torchtriage: end")], "the derived part 'main-concerns' of line"),
    (lambda text: text.replace("<!-- torchtriage: derived files -->", ""), "has no beginning"),
    (lambda text: text + "<<<<<<< HEAD\n", "merge conflict"),
    (lambda text: text.replace("derived memory", "derived memroy"),
     "unknown derived part 'memroy'; did you mean 'memory'"),
    (lambda text: text.replace("derived memory", "derived x"),
     "valid: files, executive-summary, cross-cutting, missing-tests, memory"),
])
def test_unpaired_or_unknown_markers_are_refused(change: Any, says: str) -> None:
    with pytest.raises(TriageError, match=says):
        render_batch("7", three(), change(render_batch("7", three(), None)))


def _sound(
    number: int, status: Status, severity: str, words: Sequence[str], places: Sequence[str], lines: str,
) -> Ticket:
    text = " ".join(words)
    named = dict.fromkeys((f"src/{number}.py", *places))
    return a_ticket(number, status=status, severity=severity, title=text, summary=text, files=tuple(named), lines=lines)


words = st.sampled_from(["`grad_norm`", "fails", "B7-PT-01;", "see B7-PT-02:", "a | b", "<!-- x -->", "a.py:10", "\\"])
sound = st.lists(st.tuples(
    st.sampled_from(Status), st.sampled_from(["P0", "P1", "P2", "P3", "P4"]), st.lists(words, min_size=1, max_size=5),
    st.lists(st.sampled_from(["src/a.py", "src/b/__init__.py", "lib/b/__init__.py"]), max_size=2),
    st.sampled_from(["", "3", "10-12", "7, 9-10"]),
), min_size=1, max_size=5).map(lambda parts: [_sound(number, *part) for number, part in enumerate(parts, start=1)])
batches = st.lists(tickets.map(lambda ticket: ticket.with_(batch="7")), min_size=1, max_size=3).map(
    lambda batch: files_of(*batch)
)
harmless = [piece for piece in (*PIECES, "\n") if not re.search("torchtriage|<<<|>>>", piece)]
prose = st.lists(st.sampled_from(harmless), max_size=8).map("".join)


@settings(max_examples=30)      # generating a ticket of odd characters is slow
@given(batches)
def test_rendering_again_changes_nothing(batch: Sequence[TicketFile]) -> None:
    first = render_batch("7", batch, None)
    assert render_batch("7", batch, first) == first


@given(sound, sound, prose)
def test_no_handwritten_byte_is_lost(batch: list[Ticket], later: list[Ticket], text: str) -> None:
    edited = render_batch("7", files_of(*batch), None).replace("Nothing written yet.", text) + text
    grown = render_batch("7", files_of(*later), edited)
    assert render_batch("7", files_of(*later), grown) == grown
    position = 0
    for line in "".join(handwritten(edited)).splitlines(keepends=True):
        position = grown.index(line, position) + len(line)


@given(sound)
def test_check_finds_no_problem_in_a_derived_report(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Ticket],
) -> None:
    files = files_of(*batch)
    path = tmp_path_factory.getbasetemp() / "batch7.md"
    path.write_text(render_batch("7", files, None))
    problems = check(files, [read_report(path)], path.parent, TODAY)
    assert [problem for problem in problems if problem.kind != "file-missing"] == []
