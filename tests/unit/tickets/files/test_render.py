"""A ticket that is written and read again is the same ticket."""

from pathlib import Path

import pytest
from hypothesis import given

from tests.unit.tickets.samples import TICKETS, seed, seed_text, tickets
from torchtriage.findings.model import Category
from torchtriage.tickets.files.read import category_of, parse
from torchtriage.tickets.files.render import CATEGORIES, render
from torchtriage.tickets.model import Relation, Review, Ticket

HARD = (
    "## Impact", "# Finding Ticket: x", "```python\nnever closed", "<!-- never closed", "a\n---", "---", "\\---", "\\\\# x",
    "**Impact:** x", "```\n## Impact\n```", "~~~\n```\n~~~", "<!-- torchtriage: fingerprint=bad -->",
    "<!--\n## Impact\n-->", "#### deep\n##### deeper",
)


@given(tickets)
def test_any_ticket_comes_back(ticket: Ticket) -> None:
    assert parse(render(ticket), Path("x.md")).ticket == ticket


@pytest.mark.parametrize("text", HARD)
def test_text_that_looks_like_a_part_of_the_file_comes_back(text: str) -> None:
    ticket = Ticket(id="B1-PT-01", title="t", wrong=text, impact=text, fix=text, reviews=(Review(role="r", verdict="v", evaluation=text),))
    assert parse(render(ticket), Path("x.md")).ticket == ticket


@pytest.mark.parametrize("name", TICKETS)
def test_a_seed_loses_nothing(name: str) -> None:
    ticket = seed(name).ticket
    again = parse(render(ticket), Path("x.md"))
    assert (again.ticket, again.problems) == (ticket, ())


@pytest.mark.parametrize("name", TICKETS)
def test_a_rendered_seed_has_the_sections_and_rows_of_the_original(name: str) -> None:
    def skeleton(text: str) -> set[str]:
        return {line.strip() for line in text.splitlines() if line.startswith(("#", "|", "- [", "**Report", "**Section", "**One"))}

    written, original = skeleton(render(seed(name).ticket)), skeleton(seed_text(name))
    if name == "B5-PT-06":  # two code spans in a cell become one
        written, original = ({line for line in lines if "Function/Class" not in line} for lines in (written, original))
    assert original <= written
    assert written - original <= {"### Impact"}


def test_the_sections_stand_in_the_order_of_the_seeds() -> None:
    headings = [line for line in render(seed("B7-PT-07").ticket).splitlines() if line.startswith("## ")]
    assert headings == [
        "## Ticket Metadata", "## Location", "## Summary", "## Detailed Description", "## Recommended Fix", "## Verification",
        "## Related Findings", "## Cross-Review (DRL Specialist)", "## Cross-Review (PyTorch Specialist)",
        "## Cross-Review (Code Review Specialist)", "## Appendix",
    ]


def test_every_category_has_a_box_that_is_read_as_that_category() -> None:
    assert {category: category_of(label) for category, label in CATEGORIES.items()} == {category: category for category in Category}


def test_the_fingerprint_is_hidden() -> None:
    assert "\n<!-- torchtriage: fingerprint=0123 -->\n" in render(Ticket(id="B1-TT-01", title="t", fingerprint="0123"))


def test_a_line_break_in_a_field_of_one_line_becomes_a_space() -> None:
    ticket = parse(render(Ticket(id="B1-TT-01", title="a\nb", summary="c\r\n d", files=("e\nf",))), Path("x.md")).ticket
    assert (ticket.title, ticket.summary, ticket.files) == ("a b", "c d", ("e f",))


def test_relations_are_written_with_their_kind() -> None:
    text = render(Ticket(id="B1-TT-01", title="t", related=(
        Relation(ticket_id="B1-PT-02", note="why"), Relation(ticket_id="B1-PT-03", kind="blocked-by"),
    )))
    assert "\n- B1-PT-02: why\n- B1-PT-03 (blocked-by)\n" in text


