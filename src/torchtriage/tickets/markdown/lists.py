"""List items in Markdown lines: checkboxes, bold labels (`**Label:** value`)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.tickets.markdown.lines import TEXT, TextLine

_LABEL = re.compile(r" {0,3}\*\*([^*]+?)\s*(?::\*\*|\*\*:)[ \t]*")
_CHECKBOX = re.compile(r"\s*[-*+]\s+\[([ xX]?)\](?:\s+(.*))?$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])(?:\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkbox:
    """`start` and `end` enclose the character between the brackets."""

    text: str
    is_ticked: bool
    start: int
    end: int
    line: TextLine


def label_of(line: TextLine) -> re.Match[str] | None:
    """`**Label:** ` at the start of a line; the value follows the match."""
    return _LABEL.match(line.text) if line.kind == TEXT else None


def key_of(text: str) -> str:
    """A label or table key without emphasis, colon, case and repeated spaces."""
    return " ".join(text.strip("*_`: \t").casefold().split())


def checkboxes(lines: Sequence[TextLine]) -> list[Checkbox]:
    """The checkboxes in these lines; an indented line below a checkbox continues its text."""
    boxes = []
    for index, line in enumerate(lines):
        match = _CHECKBOX.match(line.text) if line.kind == TEXT else None
        if match:
            boxes.append(Checkbox(
                text=_item_text(match[2] or "", lines, index), is_ticked=match[1] in ("x", "X"),
                start=line.start + match.start(1), end=line.start + match.end(1), line=line,
            ))
    return boxes


def items(lines: Sequence[TextLine]) -> list[tuple[TextLine, str]]:
    """The list items in these lines: (first line, text joined into one line)."""
    list_items = []
    for index, line in enumerate(lines):
        match = _ITEM.match(line.text) if line.kind == TEXT else None
        if match:
            list_items.append((line, _item_text(line.text[match.end():].strip(), lines, index)))
    return list_items


def _item_text(first: str, lines: Sequence[TextLine], index: int) -> str:
    """The text of the list item at `index`, with the lines that continue it."""
    parts = [first]
    at = index + 1
    while at < len(lines) and _continues_item(lines[at]):
        parts.append(lines[at].text.strip())
        at += 1
    return " ".join(parts).strip()


def _continues_item(line: TextLine) -> bool:
    return line.kind == TEXT and line.text[:2].isspace() and not line.is_blank and not _ITEM.match(line.text)
