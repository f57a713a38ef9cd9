"""The import of a batch report keeps what the report says: fixes, categories, prose and its contradictions."""

import datetime
from pathlib import Path

import pytest

from torchtriage.findings.model import Category
from torchtriage.tickets.batches.advice import category_of, fixes
from torchtriage.tickets.batches.imports import import_file
from torchtriage.tickets.batches.parse import parse_batch
from torchtriage.tickets.batches.report import render_batch
from torchtriage.tickets.checks.check import check, read_report
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.files.store import Store, open_store

REPORT = Path(__file__).parent.parent / "seeds" / "batch7-pytorch.md"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "tickets")
    list(import_file(store, REPORT, "2026-01-01"))
    return store


def ticket(store: Store, ticket_id: str) -> TicketFile:
    return store.find(ticket_id)


def test_19_of_21_findings_have_the_fix_that_the_report_advises(store: Store) -> None:
    without = [file.ticket.id for file in store.files if not file.ticket.fix]
    assert (len(store.files), without) == (21, ["B7-DT-01", "B7-GC-03"])      # of these the report advises nothing


@pytest.mark.parametrize(("ticket_id", "words"), [
    ("B7-EM-01", "total_sq = torch.stack(norms).pow(2).sum()"),        # the code below a recommendation
    ("B7-AD-01", "**Integrate `check_gradient_drift()`**"),            # a recommendation that names the function
    ("B7-EM-02", "**Narrow exception handling**"),                     # one that names the lines
    ("B7-TC-01", "Remove unused config fields"),                       # one that names the class of the file
    ("B7-GC-04", 'Document the non-standard "average norm"'),          # one that names the file
    ("B7-GE-02", "Consider clamping: `max(self.ema_norm, 1e-6)`"),     # the finding's own advice
    ("B7-EM-03", "exc_info=True"),
])
def test_a_fix_is_what_the_report_says(store: Store, ticket_id: str, words: str) -> None:
    assert words in ticket(store, ticket_id).ticket.fix


@pytest.mark.parametrize(("ticket_id", "category"), [
    ("B7-DT-01", Category.COMPILE), ("B7-DT-02", Category.PERFORMANCE), ("B7-EM-01", Category.NUMERICS),
    ("B7-GC-01", Category.RESOURCE), ("B7-LH-01", Category.TEST_GAP), ("B7-PR-01", Category.DEAD_CODE),
    ("B7-EM-02", Category.DEFENSIVE), ("B7-LH-03", Category.DOCUMENTATION),
])
def test_a_category_is_read_from_the_words_of_the_finding(store: Store, ticket_id: str, category: Category) -> None:
    assert ticket(store, ticket_id).ticket.categories == {category}


def test_words_that_say_nothing_give_no_category() -> None:
    assert category_of(["the value is odd"]) == frozenset()


def test_a_report_without_advice_gives_no_fix() -> None:
    table = "| ID | File | Severity | Issue |\n|--|--|--|--|\n| B1-A-1 | a.py | P2 | slow |\n"
    assert fixes(parse_batch(f"# R\n\n## Detailed Findings Table\n\n{table}")) == {}


def test_the_report_is_kept_byte_for_byte(store: Store) -> None:
    assert (store.folder / REPORT.name).read_bytes() == REPORT.read_bytes()


def test_check_finds_the_same_before_and_after_the_import(store: Store) -> None:
    def flaws(report: Path) -> list[tuple[int | None, str]]:
        found = check(store.every, [read_report(report)], store.folder, datetime.date(2026, 1, 2))
        return [(problem.line, problem.kind) for problem in found if problem.path == str(report)]

    assert flaws(store.folder / REPORT.name) == flaws(REPORT)
    assert len(flaws(REPORT)) == 5


def test_a_new_report_takes_over_what_people_wrote(store: Store) -> None:
    text = render_batch("7", store.files, None, parse_batch(REPORT.read_text()))
    for words in (
        "**Purpose:** EMA tracking for gradient drift detection.",
        "- Excellent async/sync pattern separation",
        "**Code Quality:** Good design with effective_level property",
        "| `torch.inference_mode` | 1.9 | lstm_health.py |",
        "**Reviewer Focus:** PyTorch Engineering",
        "Estimated VRAM overhead per call:",
        "Overall code quality is **good**",
    ):
        assert words in text
    assert text.count("no fix is written") == 2


def test_importing_a_report_again_keeps_one_copy(store: Store) -> None:
    again = list(import_file(store, REPORT, "2026-01-01"))
    assert all(isinstance(result, str) and "already exists" in result for result in again)
    assert len(again) == 21
