"""Writes a ticket as a new Markdown file."""

from collections.abc import Iterable

from torchtriage.findings.model import Category
from torchtriage.tickets.files.reading import IN_CODE, LOCATION, METADATA
from torchtriage.tickets.markdown.passages import guarded, starts_block
from torchtriage.tickets.markdown.tables import dressed_as_code, dressed_plain, one_line
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
RULE = "---"
HEAD = ("| Field | Value |", "|-------|-------|")


def render(ticket: Ticket) -> str:
    """The whole file; what it says reads back as the same ticket."""
    mark = ["", fingerprint_line(ticket.fingerprint)] if ticket.fingerprint else []
    parts: list[list[str]] = [
        [f"# Finding Ticket: {one_line(ticket.title)}".rstrip(), *mark],
        ["## Ticket Metadata", "", *HEAD, *(row(keys[0], value(name, getattr(ticket, name))) for name, keys in METADATA.items())],
        ["## Location", "", *HEAD, *_location(ticket)],
        ["## Summary", "", _labelled("One-line summary", one_line(ticket.summary)), "", "**Category:**", *_categories(ticket.categories)],
        ["## Detailed Description", "", "### What's Wrong", *_passage(ticket.wrong, 3), "", "### Impact", *_passage(ticket.impact, 3)],
        ["## Recommended Fix", *_passage(ticket.fix, 2)],
        ["## Verification", "", "### How to Verify the Fix", *([""] if ticket.verification else []), *map(_box, ticket.verification)],
        ["## Related Findings", "", *([_relation(relation) for relation in ticket.related] or ["None."])],
        *(review_lines(review) for review in ticket.reviews),
        ["## Appendix", "", "### Original Report Reference", "", _labelled("Report file", dressed_as_code(ticket.report_file)),
         _labelled("Section", one_line(ticket.report_section))],
    ]
    return f"\n\n{RULE}\n\n".join("\n".join(part) for part in parts) + "\n"


def row(key: str, dressed: str) -> str:
    return f"| **{key}** | {dressed} |" if dressed else f"| **{key}** | |"


def value(name: str, text: str) -> str:
    """The text of a field as it stands in its cell."""
    return dressed_as_code(text) if name in IN_CODE else dressed_plain(text)


def fingerprint_line(fingerprint: str) -> str:
    return f"<!-- torchtriage: fingerprint={fingerprint} -->"


def review_lines(review: Review) -> list[str]:
    """A cross-review with its heading."""
    fields = [("Verdict", dressed_as_code(review.verdict)), ("Reviewer", dressed_plain(review.reviewer))]
    if review.date:
        fields.append(("Date", dressed_plain(review.date)))
    text, label = guarded(review.evaluation, 2), "**Evaluation:**"
    evaluation = [label, "", text] if starts_block(review.evaluation) else [f"{label} {text}" if text else label]
    heading = f"## Cross-Review ({one_line(review.role)})" if review.role else "## Cross-Review"
    return [heading, "", *HEAD, *(row(key, dressed) for key, dressed in fields), "", *evaluation]


def _location(ticket: Ticket) -> Iterable[str]:
    yield row(LOCATION["files"][0], ", ".join(dressed_as_code(file) for file in ticket.files))
    for name in ("lines", "function"):
        yield row(LOCATION[name][0], value(name, getattr(ticket, name)))


def _categories(ticked: frozenset[Category]) -> Iterable[str]:
    return (_box(Box(text=label, is_ticked=category in ticked)) for category, label in CATEGORIES.items())


def _box(box: Box) -> str:
    return f"- [{'x' if box.is_ticked else ' '}] {one_line(box.text)}".rstrip()


def _relation(relation: Relation) -> str:
    kind = "" if relation.kind == "related" else f" ({relation.kind})"
    return f"- {relation.ticket_id}{kind}: {one_line(relation.note)}" if relation.note else f"- {relation.ticket_id}{kind}"


def _labelled(label: str, text: str) -> str:
    return f"**{label}:** {text}".rstrip()


def _passage(text: str, level: int) -> list[str]:
    return ["", guarded(text, level)] if text else []
