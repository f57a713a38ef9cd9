"""Cut a Markdown file into sections: a ticket by known section names, a report by heading level."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchtriage.tickets.markdown.lines import TextLine, heading, heading_of

# Sections that hold free text. In any other section, every heading starts a new section.
FREE_TEXT = frozenset({"wrong", "impact", "fix", "review"})
MAX_LEVEL = 3           # a known name in a deeper heading is part of the author's text
_NAMES = {
    "metadata": ("ticket metadata", "metadata"),
    "location": ("location", "locations"),
    "summary": ("summary",),
    "category": ("category", "categories"),
    "description": ("detailed description", "description"),
    "wrong": ("what's wrong", "whats wrong", "what is wrong", "problem"),
    "impact": ("impact",),
    "fix": ("recommended fix", "recommended fixes", "proposed fix", "suggested fix", "fix"),
    "verification": ("verification", "how to verify the fix", "how to verify"),
    "related": ("related findings", "related tickets", "related"),
    "appendix": ("appendix",),
    "reference": ("original report reference", "report reference"),
    "seen": ("seen by torchtriage",),
}
_BY_TITLE = {title: name for name, titles in _NAMES.items() for title in titles}
_TITLE = re.compile(r"finding ticket\b\s*:?", re.I)
_REVIEW = re.compile(r"cross[- ]?reviews?\b", re.I)
_NUMBERED = re.compile(r"^\d+[.)]\s+")


@dataclass(slots=True, kw_only=True)
class TicketSection:
    """`name` is one of the known names, empty for an unknown section; the first section has no heading."""

    name: str
    title: str = ""
    level: int = 0
    heading: TextLine | None = None
    lines: list[TextLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A heading and the lines up to the next heading that ends it; the part before the first heading has no title."""

    title: str
    level: int
    line: int
    lines: tuple[TextLine, ...]


def section_name(title: str) -> str:
    """The known name of a heading, ignoring case, emphasis, number and colon; empty for an unknown heading."""
    plain = _NUMBERED.sub("", title.strip("#*_` \t")).replace("’", "'").strip(": \t")
    if _TITLE.match(plain):
        return "title"
    return "review" if _REVIEW.match(plain) else _BY_TITLE.get(plain.casefold(), "")


def title_text(title: str) -> str:
    """The title of a ticket without the words `Finding Ticket:`."""
    return _TITLE.sub("", title, count=1).strip() if _TITLE.match(title) else title


def begins_section(text: str, level: int) -> bool:
    """Whether a line ends the free text of a section whose heading has this level."""
    parts = heading(text)
    if parts is None:
        return False
    new_level, title = parts
    return new_level <= level or (new_level <= MAX_LEVEL and bool(section_name(title)))


def ticket_sections(lines: Sequence[TextLine]) -> list[TicketSection]:
    """A ticket cut at its headings; the first section is the part above all headings."""
    sections = [TicketSection(name="head")]
    has_title = False
    for line in lines:
        current = sections[-1]
        parts = heading_of(line)
        if parts is None or (current.name in FREE_TEXT and not begins_section(line.text, current.level)):
            current.lines.append(line)
            continue
        level, title = parts
        name = section_name(title)
        if not name and level == 1 and not has_title:
            name = "title"
        has_title |= name == "title"
        sections.append(TicketSection(name=name, title=title, level=level, heading=line))
    return sections


def report_sections(lines: Sequence[TextLine], level: int) -> list[ReportSection]:
    """A report cut at headings of this level or above; deeper headings stay in the lines, to be cut by another call."""
    sections: list[ReportSection] = []
    title, depth, start = "", 0, 0
    body: list[TextLine] = []
    for line in lines:
        parts = heading_of(line)
        if parts and parts[0] <= level:
            sections.append(ReportSection(title=title, level=depth, line=start, lines=tuple(body)))
            (depth, title), start, body = parts, line.number, []
        else:
            body.append(line)
    sections.append(ReportSection(title=title, level=depth, line=start, lines=tuple(body)))
    return [section for section in sections if section.level or any(not line.is_blank for line in section.lines)]
