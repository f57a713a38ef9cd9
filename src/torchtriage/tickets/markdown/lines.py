"""The lines of a Markdown ticket with their places in the text: what is code or comment, and which section each line is in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

TEXT, CODE, COMMENT = "text", "code", "comment"

# The sections that hold free text; everywhere else any heading begins a new section.
FREE_TEXT = frozenset({"wrong", "impact", "fix", "review"})
MAX_LEVEL = 3           # a known name in a deeper heading is part of somebody's text
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
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_TITLE = re.compile(r"finding ticket\b\s*:?", re.I)
_REVIEW = re.compile(r"cross[- ]?reviews?\b", re.I)
_COMMENT = re.compile(r" {0,3}<!--")
_NUMBERED = re.compile(r"^\d+[.)]\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`start` and `end` are offsets into the text, `end` after the line ending; `opens` if a code fence or comment begins here."""

    number: int
    start: int
    end: int
    text: str
    kind: str = TEXT
    opens: bool = False

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


@dataclass(slots=True, kw_only=True)
class Section:
    """`name` is one of ours, empty for a section that we do not know; the first section has no heading."""

    name: str
    title: str = ""
    level: int = 0
    heading: Line | None = None
    lines: list[Line] = field(default_factory=list)


def scan(text: str) -> tuple[list[Line], list[Line]]:
    """(the lines, those of them that open a fence or a comment which nothing closes: they count as text)."""
    plain = [
        (match.start(), match.end(), match[1]) for match in _LINE.finditer(text) if match.end() > match.start()
    ]
    texts = [entry[2] for entry in plain]
    kinds = [(TEXT, False)] * len(plain)
    unclosed: list[int] = []
    hopeless: dict[str, int] = {}   # the shortest opener of each kind that nothing closes: a longer one later is not closed either
    index = 0
    while index < len(texts):
        kind, mark = _opener(texts[index])
        end = index if not mark else None
        if mark and len(mark) < hopeless.get(mark[0], len(mark) + 1):
            end = _closing(texts, index, mark)
        if end is None:
            unclosed.append(index)
            hopeless[mark[0]] = min(len(mark), hopeless.get(mark[0], len(mark)))
            end = index
        elif mark:
            kinds[index: end + 1] = [(kind, True)] + [(kind, False)] * (end - index)
        index = end + 1
    lines = [
        Line(number=i + 1, start=start, end=end, text=words, kind=kinds[i][0], opens=kinds[i][1])
        for i, (start, end, words) in enumerate(plain)
    ]
    return lines, [lines[i] for i in unclosed]


def _opener(text: str) -> tuple[str, str]:
    """The kind of block that a line opens and its mark; no mark if it opens none."""
    fence = _FENCE.match(text)
    if fence and not (fence[1][0] == "`" and "`" in fence[2]):
        return CODE, fence[1]
    return (COMMENT, "<!--") if _COMMENT.match(text) else (TEXT, "")


def _closing(texts: Sequence[str], index: int, mark: str) -> int | None:
    if mark == "<!--":
        after = texts[index].index(mark) + len(mark)
        if "-->" in texts[index][after:]:
            return index
        return next((i for i in range(index + 1, len(texts)) if "-->" in texts[i]), None)
    for i in range(index + 1, len(texts)):
        candidate = texts[i].strip()
        if len(candidate) >= len(mark) and set(candidate) == {mark[0]}:
            return i
    return None


def heading(text: str) -> tuple[int, str] | None:
    """(level, title) if a line of text is a heading."""
    match = _HEADING.match(text)
    return (len(match[1]), (match[2] or "").strip()) if match else None


def section_name(title: str) -> str:
    """Our name for a heading, whatever its case, emphasis, number and colon; empty for one that we do not know."""
    plain = _NUMBERED.sub("", title.strip("#*_` \t")).replace("’", "'").strip(": \t")
    if _TITLE.match(plain):
        return "title"
    return "review" if _REVIEW.match(plain) else _BY_TITLE.get(plain.casefold(), "")


def title_text(title: str) -> str:
    """The title of a ticket without the words `Finding Ticket:`."""
    return _TITLE.sub("", title, count=1).strip() if _TITLE.match(title) else title


def begins_section(text: str, level: int) -> bool:
    """Whether a line ends the free text of a section whose heading has this level."""
    found = heading(text)
    return found is not None and (found[0] <= level or (found[0] <= MAX_LEVEL and bool(section_name(found[1]))))


def sections(lines: Sequence[Line]) -> list[Section]:
    """The file cut at its headings; the first part is what stands above them."""
    found = [Section(name="head")]
    has_title = False
    for line in lines:
        current = found[-1]
        title = heading(line.text) if line.kind == TEXT else None
        if title is None or (current.name in FREE_TEXT and not begins_section(line.text, current.level)):
            current.lines.append(line)
            continue
        name = section_name(title[1])
        if not name and title[0] == 1 and not has_title:
            name = "title"
        has_title |= name == "title"
        found.append(Section(name=name, title=title[1], level=title[0], heading=line))
    return found
