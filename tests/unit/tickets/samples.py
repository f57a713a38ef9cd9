"""The example tickets in seeds/, and Hypothesis strategies for tickets that a Markdown file can hold."""

from pathlib import Path

from hypothesis import strategies as st

from torchtriage.findings.model import Category
from torchtriage.tickets.files.read import RELATION_KINDS, TicketFile, parse
from torchtriage.tickets.model import Box, Relation, Review, Ticket

SEEDS = Path(__file__).parent / "seeds"
TICKETS = ("B7-PT-07", "B5-PT-06", "B8-PT-06")
REPORT = SEEDS / "batch7-pytorch.md"

# Text that has a special meaning somewhere in Markdown or in a ticket.
PIECES = (
    "|", "\\|", "\\", "`", "``", "```", "~~~", "**", "*", "#", "##", "###", " ", "  ", "<!--", "-->", "---", "***",
    "- [x]", "- [ ] a",
    "- ", "**Impact:**", "**Impact**: x", "**Evaluation:**", "**Section:**", "**One-line summary:**", "## Impact",
    "### Impact",
    "#### Impact", "# Finding Ticket: x", "## Cross-Review (A)", "| **Verdict** | `X` |",
    "| **Ticket ID** | B1-PT-01 |", "(blocks)",
    "None.", ": ", "é→你", "<!-- torchtriage: fingerprint=abc -->", "<!-- torchtriage: seen -->",
    "<!-- torchtriage: end -->",
    "    code", "\\# no heading", "\\\\---", "```python", "`a`, `b`", "f(x)", "\u2028", "\x0b", "\xa0", "1. ",
    "<<<<<<< HEAD",
    ">>>>>>> x", "## Unknown", "| a | b |", "|---|---|",
)
_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")
lines = st.lists(st.sampled_from(PIECES) | st.text(_characters, max_size=8), max_size=4).map("".join)
inline = lines.map(str.strip)
fences = lines.map(lambda text: f"```python\n## Impact\n{text.replace('```', '')}\n---\n```")
blocks = st.lists(lines | fences, max_size=6).map(lambda parts: _trimmed("\n".join(parts)))
ids = st.from_regex(r"\AB[1-9]-[A-Z]{2,3}-[0-9]{2}\Z")
tickets = st.builds(
    Ticket, id=ids | inline, title=inline, severity=inline, status=inline, batch=inline, agent=inline, domain=inline,
    assignee=inline,
    created=inline, updated=inline, files=st.lists(inline.filter(bool), max_size=3).map(tuple), lines=inline,
    function=inline,
    summary=inline, categories=st.frozensets(st.sampled_from(Category)), wrong=blocks, impact=blocks, fix=blocks,
    verification=st.lists(st.builds(Box, text=inline, is_ticked=st.booleans()), max_size=4).map(tuple),
    related=st.lists(
        st.builds(Relation, ticket_id=ids, kind=st.sampled_from(RELATION_KINDS), note=inline), max_size=3,
    ).map(tuple),
    reviews=st.lists(
        st.builds(Review, role=inline, verdict=inline, reviewer=inline, date=inline, evaluation=blocks), max_size=3,
    ).map(tuple),
    report_file=inline, report_section=inline, fingerprint=st.just("") | st.from_regex(r"\A[0-9a-f]{16}\Z"),
)


def seed_text(name: str) -> str:
    return (SEEDS / f"{name}.md").read_bytes().decode()


def seed(name: str) -> TicketFile:
    return parse(seed_text(name), Path(f"{name}.md"))


def _trimmed(text: str) -> str:
    """The text without surrounding blank lines, which belong to the file and not to the text."""
    parts = text.split("\n")
    while parts and not parts[0].strip():
        parts = parts[1:]
    while parts and not parts[-1].strip():
        parts = parts[:-1]
    return "\n".join(parts)
