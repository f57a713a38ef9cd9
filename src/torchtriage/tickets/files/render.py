"""Write a ticket as a new Markdown file."""

from collections.abc import Iterable

from torchtriage.findings.model import Category
from torchtriage.tickets.files.read import LOCATION, METADATA
from torchtriage.tickets.markdown.passages import escape, starts_block
from torchtriage.tickets.markdown.tables import code_cell, one_line, text_cell
from torchtriage.tickets.model import Box, Relation, Review, Ticket

# The labels of the twelve boxes; each begins with the name of its category.
CATEGORIES = {
    Category.CORRECTNESS: "Correctness bug",
    Category.CONCURRENCY: "Race condition / concurrency",
    Category.RESOURCE: "Memory leak / resource issue",
    Category.PERFORMANCE: "Performance bottleneck",
    Category.NUMERICS: "Numerical stability",
    Category.COMPILE: "torch.compile compatibility",
    Category.DEAD_CODE: "Dead code / unwired functionality",
    Category.CONTRACT: "API design / contract violation",
    Category.TEST_GAP: "Test coverage gap",
    Category.DOCUMENTATION: "Documentation / naming",
    Category.DEFENSIVE: "Defensive programming violation",
    Category.LEGACY: "Legacy code policy violation",
}
# Fields whose value is written as a code span.
IN_CODE = frozenset({"id", "severity", "status", "agent", "domain", "lines", "function"})
RULE = "---"
TABLE_HEADER = ("| Field | Value |", "|-------|-------|")


def render(ticket: Ticket) -> str:
    """The text of a new file; `parse` reads the same ticket back from it."""
    title = [f"# Finding Ticket: {one_line(ticket.title)}".rstrip()]
    if ticket.fingerprint:
        title += ["", _fingerprint_line(ticket.fingerprint)]
    metadata = [table_row(keys[0], field_cell(name, getattr(ticket, name))) for name, keys in METADATA.items()]
    verification = ["", *map(_box, ticket.verification)] if ticket.verification else []
    parts: list[list[str]] = [
        title,
        ["## Ticket Metadata", "", *TABLE_HEADER, *metadata],
        ["## Location", "", *TABLE_HEADER, *_location(ticket)],
        ["## Summary", "", _label_line("One-line summary", one_line(ticket.summary)), "",
         "**Category:**", *_categories(ticket.categories)],
        ["## Detailed Description", "", "### What's Wrong", *_passage(ticket.wrong, 3), "",
         "### Impact", *_passage(ticket.impact, 3)],
        ["## Recommended Fix", *_passage(ticket.fix, 2)],
        ["## Verification", "", "### How to Verify the Fix", *verification],
        ["## Related Findings", "", *([_relation(relation) for relation in ticket.related] or ["None."])],
        *(review_lines(review) for review in ticket.reviews),
        ["## Appendix", "", "### Original Report Reference", "",
         _label_line("Report file", code_cell(ticket.report_file)),
         _label_line("Section", one_line(ticket.report_section))],
    ]
    return f"\n\n{RULE}\n\n".join("\n".join(part) for part in parts) + "\n"


def table_row(key: str, cell: str) -> str:
    return f"| **{key}** | {cell} |" if cell else f"| **{key}** | |"


def field_cell(name: str, value: str) -> str:
    """The value of a field as it is written into its cell."""
    return code_cell(value) if name in IN_CODE else text_cell(value)


def review_lines(review: Review) -> list[str]:
    """A cross-review with its heading."""
    rows = [table_row("Verdict", code_cell(review.verdict)), table_row("Reviewer", text_cell(review.reviewer))]
    if review.date:
        rows.append(table_row("Date", text_cell(review.date)))
    text, label = escape(review.evaluation, 2), "**Evaluation:**"
    if starts_block(review.evaluation):
        evaluation = [label, "", text]
    else:
        evaluation = [f"{label} {text}" if text else label]
    heading = f"## Cross-Review ({one_line(review.role)})" if review.role else "## Cross-Review"
    return [heading, "", *TABLE_HEADER, *rows, "", *evaluation]


def _fingerprint_line(fingerprint: str) -> str:
    return f"<!-- torchtriage: fingerprint={fingerprint} -->"


def _location(ticket: Ticket) -> Iterable[str]:
    yield table_row(LOCATION["files"][0], ", ".join(code_cell(file) for file in ticket.files))
    for name in ("lines", "function"):
        yield table_row(LOCATION[name][0], field_cell(name, getattr(ticket, name)))


def _categories(ticked: frozenset[Category]) -> Iterable[str]:
    return (_box(Box(text=label, is_ticked=category in ticked)) for category, label in CATEGORIES.items())


def _box(box: Box) -> str:
    return f"- [{'x' if box.is_ticked else ' '}] {one_line(box.text)}".rstrip()


def _relation(relation: Relation) -> str:
    kind = "" if relation.kind == "related" else f" ({relation.kind})"
    note = f": {one_line(relation.note)}" if relation.note else ""
    return f"- {relation.ticket_id}{kind}{note}"


def _label_line(label: str, text: str) -> str:
    return f"**{label}:** {text}".rstrip()


def _passage(text: str, level: int) -> list[str]:
    return ["", escape(text, level)] if text else []
