"""Editing a ticket replaces the bytes of one field and keeps everything a person wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tickets.samples import TICKETS, blocks, inline, seed, seed_text
from torchtriage.errors import TriageError
from torchtriage.tickets.files.edit import add_review, seen_lines, set_box, set_field, set_seen
from torchtriage.tickets.files.read import TicketFile, parse
from torchtriage.tickets.model import Review

ENDINGS = st.sampled_from(["\n", "\r\n"])
FIELDS = st.sampled_from(["status", "severity", "assignee", "updated", "domain"])


def file_of(name: str, ending: str = "\n", more: str = "") -> TicketFile:
    """A seed with these line endings, irregular handwritten parts, and more at its end."""
    text = seed_text(name).replace("## Location", "## My own notes  \n\n   odd   \t\n| a | b\n\n## Location", 1) + more
    return parse(text.replace("\n", ending), Path("x.md"))


def changed_lines(before: TicketFile, after: TicketFile) -> list[tuple[str, str]]:
    """The lines that differ; the number of lines must be the same."""
    old, new = before.text.split("\n"), after.text.split("\n")
    assert len(old) == len(new)
    return [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]


def is_only_added_to(before: TicketFile, after: TicketFile) -> bool:
    """Whether the only change is one inserted block of text."""
    start = next((i for i, (a, b) in enumerate(zip(before.text, after.text, strict=False)) if a != b), len(before.text))
    num_new = len(after.text) - len(before.text)
    return any(
        before.text[:at] == after.text[:at] and before.text[at:] == after.text[at + num_new:]
        for at in range(max(0, start - num_new), start + 1)
    )


@given(st.sampled_from(TICKETS), ENDINGS, FIELDS, inline)
def test_setting_a_field_changes_nothing_else(name: str, ending: str, field: str, value: str) -> None:
    before = file_of(name, ending)
    after = set_field(before, field, value)
    assert after.ticket == before.ticket.with_(**{field: value})
    assert len(changed_lines(before, after)) <= 1
    assert all(value in new.replace("\\|", "|") for _, new in changed_lines(before, after))


@given(st.sampled_from(TICKETS), ENDINGS, st.integers(0, 2))
def test_ticking_a_box_changes_nothing_else(name: str, ending: str, number: int) -> None:
    before = file_of(name, ending)
    after = set_box(before, number, is_ticked=True)
    [(old, new)] = changed_lines(before, after)
    assert (old.replace("[ ]", "[x]"), old != new) == (new, True)
    assert [box.is_ticked for box in after.ticket.verification] == [index == number for index in range(3)]
    assert set_box(after, number, is_ticked=False).text == before.text


REVIEWS = st.builds(Review, role=inline, verdict=inline, reviewer=inline, date=inline, evaluation=blocks)


@given(st.sampled_from(TICKETS), ENDINGS, REVIEWS)
def test_a_review_is_added_after_the_others(name: str, ending: str, review: Review) -> None:
    before = file_of(name, ending)
    after = add_review(before, review)
    assert after.ticket == before.ticket.with_(reviews=(*before.ticket.reviews, review))
    assert is_only_added_to(before, after)


@given(st.sampled_from(TICKETS), ENDINGS, st.sampled_from(["", "no line ending", "\n\n\n"]))
def test_the_machine_written_section_is_added_at_the_end_then_replaced(name: str, ending: str, more: str) -> None:
    before = file_of(name, ending, more)
    after = set_seen(before, ["one", "", "two"])
    assert after.ticket == before.ticket
    assert is_only_added_to(before, after)
    assert seen_lines(after) == ["one", "", "two"]
    again = set_seen(after, ["three"])
    assert seen_lines(again) == ["three"]
    assert again.text == after.text.replace(f"one{ending}{ending}two", "three")
    assert add_review(again, Review(role="r", verdict="v")).ticket.reviews[-1].role == "r"


@pytest.mark.parametrize(("row", "expected"), [
    ("| **Status** | `open` |", "| **Status** | `closed` |"),
    ("| Status | open |", "| Status | closed |"),
    ("|Status|open|", "|Status|closed|"),
    ("| **Status**   |   `open`   |  ", "| **Status**   |   `closed`   |  "),
    ("| **Status** | |", "| **Status** | `closed` |"),
    ("| **Status** ||", "| **Status** | `closed` |"),
    ("| **Status** | **open**", "| **Status** | closed"),
])
def test_a_new_value_keeps_the_formatting_of_the_cell(row: str, expected: str) -> None:
    before = seed_text("B7-PT-07").replace("| **Status** | `open` |", row)
    after = set_field(parse(before, Path("x.md")), "status", "closed")
    assert after.text == before.replace(row, expected)
    assert after.ticket.status == "closed"


def test_a_missing_row_is_added_to_the_table() -> None:
    text = seed_text("B7-PT-07").replace("| **Assignee** | |\n", "").replace("\n", "\r\n")
    after = set_field(parse(text, Path("x.md")), "assignee", "ada")
    last_row = "| **Updated** | 2024-12-27 |\r\n"
    assert after.text == text.replace(last_row, f"{last_row}| **Assignee** | ada |\r\n")
    assert after.ticket.assignee == "ada"


@pytest.mark.parametrize("change", [
    lambda file: set_field(file, "status", "closed"), lambda file: set_field(file, "assignee", "ada"),
])
def test_a_file_without_a_metadata_table_is_refused(change: Callable[[TicketFile], TicketFile]) -> None:
    with pytest.raises(TriageError, match=r"^docs/x\.md: no metadata table"):
        change(parse("# Finding Ticket: t\n\ntext\n", Path("docs/x.md")))


def test_a_broken_row_is_refused() -> None:
    file = parse(seed_text("B7-PT-07").replace("| `open` |", "| `open` | or not |"), Path("docs/x.md"))
    with pytest.raises(TriageError, match=r"^docs/x\.md:11: the row 'Status' has 3 cells"):
        set_field(file, "status", "closed")
    assert set_field(file, "severity", "P1").ticket.severity == "P1"


def test_a_machine_written_section_without_its_end_is_refused() -> None:
    text = set_seen(seed("B7-PT-07"), ["one"]).text
    file = parse(text.replace("<!-- torchtriage: end -->\n", "my words\n"), Path("docs/x.md"))
    with pytest.raises(TriageError, match=r"^docs/x\.md:\d+: the section that torchtriage writes"):
        set_seen(file, ["two"])
