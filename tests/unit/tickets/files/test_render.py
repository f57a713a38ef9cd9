"""A ticket that is written and read back is unchanged."""

from pathlib import Path

import pytest
from hypothesis import given

from tests.unit.tickets.samples import TICKETS, seed, seed_text, tickets
from torchtriage.findings.model import Category
from torchtriage.tickets.files.read import category_of, parse
from torchtriage.tickets.files.render import CATEGORIES, render
from torchtriage.tickets.model import Relation, Review, Ticket

HARD = (
    "## Impact", "# Finding Ticket: x", "```python\nnever closed", "<!-- never closed", "a\n---", "---", "\\---",
    "\\\\# x",
    "**Impact:** x", "```\n## Impact\n```", "~~~\n```\n~~~", "<!-- torchtriage: fingerprint=bad -->",
    "<!--\n## Impact\n-->", "#### deep\n##### deeper",
)


@given(tickets)
def test_any_ticket_reads_back_unchanged(ticket: Ticket) -> None:
    assert parse(render(ticket), Path("x.md")).ticket == ticket


@pytest.mark.parametrize("text", HARD)
def test_text_that_looks_like_ticket_markup_reads_back_unchanged(text: str) -> None:
    review = Review(role="r", verdict="v", evaluation=text)
    ticket = Ticket(id="B1-PT-01", title="t", wrong=text, impact=text, fix=text, reviews=(review,))
    assert parse(render(ticket), Path("x.md")).ticket == ticket


@pytest.mark.parametrize("name", TICKETS)
def test_a_rendered_seed_reads_back_unchanged(name: str) -> None:
    ticket = seed(name).ticket
    again = parse(render(ticket), Path("x.md"))
    assert (again.ticket, again.problems) == (ticket, ())


@pytest.mark.parametrize("name", TICKETS)
def test_a_rendered_seed_has_the_sections_and_rows_of_the_original(name: str) -> None:
    def skeleton(text: str) -> set[str]:
        starts = ("#", "|", "- [", "**Report", "**Section", "**One")
        return {line.strip() for line in text.splitlines() if line.startswith(starts)}

    written, original = skeleton(render(seed(name).ticket)), skeleton(seed_text(name))
    if name == "B5-PT-06":  # two code spans in a cell become one
        written, original = ({line for line in lines if "Function/Class" not in line} for lines in (written, original))
    assert original <= written
    assert written - original <= {"### Impact"}


def test_sections_have_the_order_of_the_seeds() -> None:
    headings = [line for line in render(seed("B7-PT-07").ticket).splitlines() if line.startswith("## ")]
    assert headings == [
        "## Ticket Metadata", "## Location", "## Summary", "## Detailed Description", "## Recommended Fix",
        "## Verification",
        "## Related Findings", "## Cross-Review (DRL Specialist)", "## Cross-Review (PyTorch Specialist)",
        "## Cross-Review (Code Review Specialist)", "## Appendix",
    ]


def test_every_category_label_reads_back_as_its_category() -> None:
    assert set(CATEGORIES) == set(Category)
    assert [category_of(label) for label in CATEGORIES.values()] == list(CATEGORIES)


def test_the_fingerprint_is_hidden() -> None:
    assert "\n<!-- torchtriage: fingerprint=0123 -->\n" in render(Ticket(id="B1-TT-01", title="t", fingerprint="0123"))


def test_a_line_break_in_a_one_line_field_becomes_a_space() -> None:
    ticket = parse(render(Ticket(id="B1-TT-01", title="a\nb", summary="c\r\n d", files=("e\nf",))), Path("x.md")).ticket
    assert (ticket.title, ticket.summary, ticket.files) == ("a b", "c d", ("e f",))


def test_relations_are_written_with_their_kind() -> None:
    text = render(Ticket(id="B1-TT-01", title="t", related=(
        Relation(ticket_id="B1-PT-02", note="why"), Relation(ticket_id="B1-PT-03", kind="blocked-by"),
    )))
    assert "\n- B1-PT-02: why\n- B1-PT-03 (blocked-by)\n" in text


