"""Free text within a ticket: a line that would end its section is written with a backslash in front, and read without."""

import re
from collections.abc import Sequence

from torchtriage.tickets.markdown.lines import COMMENT, TEXT, Line, begins_section, scan

_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
# What can have a meaning of its own at the start of a line, with the backslashes before it.
_SPECIAL = re.compile(r"(\s*)(\\*)(?=#{1,6}(?:[ \t]|$)|```|~~~|<!--|\*\*Impact\b|([-*_])(?:[ \t]*\3){2,}[ \t]*$)")
IMPACT = re.compile(r" {0,3}\*\*Impact\s*(?::\*\*|\*\*:)[ \t]*(.*)$")
OURS = re.compile(r" {0,3}<!-- torchtriage: *([^>]*?) *-->\s*$")


def is_rule(line: Line) -> bool:
    return line.kind == TEXT and bool(_RULE.match(line.text))


def content(lines: Sequence[Line]) -> list[Line]:
    """The lines of a section without the blank ones around them and the rule that parts it from the next."""
    return _without_blank_start(_without_end(lines))


def read_passage(lines: Sequence[Line], first: str = "") -> str:
    """The text that these lines hold; `first` is what stands before them on the line of a label."""
    if not first.strip():
        return "\n".join(_unguarded(line) for line in content(lines))
    return "\n".join([first, *(_unguarded(line) for line in _without_end(lines))])


def guarded(text: str, level: int) -> str:
    """The text so that it reads back as it is from a section whose heading has this level."""
    every, unclosed = scan(text)
    lines = _without_blank_start(_without_end(every, with_rules=True))
    numbers = {line.number for line in unclosed}
    if lines and is_rule(lines[-1]):
        numbers.add(lines[-1].number)   # at the end it would be taken for the one between sections
    return "\n".join(
        _with_backslash(line.text) if line.number in numbers or _is_dangerous(line, level) else line.text for line in lines
    )


def starts_block(text: str) -> bool:
    """Whether a text cannot begin behind a label on the same line."""
    first = text.split("\n", 1)[0]
    return first != first.lstrip() or bool(_SPECIAL.match(first))


def _without_end(lines: Sequence[Line], *, with_rules: bool = False) -> Sequence[Line]:
    end = len(lines)
    while end and (lines[end - 1].is_blank or (not with_rules and is_rule(lines[end - 1]))):
        end -= 1
    return lines[:end]


def _without_blank_start(lines: Sequence[Line]) -> list[Line]:
    start = next((i for i, line in enumerate(lines) if not line.is_blank), len(lines))
    return list(lines[start:])


def _is_dangerous(line: Line, level: int) -> bool:
    if line.kind == COMMENT:
        return line.opens and bool(OURS.match(line.text))
    if line.kind != TEXT:
        return False
    special = _SPECIAL.match(line.text)
    has_backslash = special is not None and bool(special[2])
    return has_backslash or begins_section(line.text, level) or bool(IMPACT.match(line.text))


def _with_backslash(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return f"{text[:indent]}\\{text[indent:]}"


def _unguarded(line: Line) -> str:
    special = _SPECIAL.match(line.text) if line.kind == TEXT else None
    if special is None or not special[2]:
        return line.text
    at = special.end(1)
    return line.text[:at] + line.text[at + 1:]
