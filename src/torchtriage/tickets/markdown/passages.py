"""Free text within a ticket.

A line that would end its section is written with a leading backslash, which is removed when the line is read.
"""

import re
from collections.abc import Sequence

from torchtriage.tickets.markdown.lines import COMMENT, TEXT, TextLine, scan
from torchtriage.tickets.markdown.sections import begins_section

_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
# Anything that can have a special meaning at the start of a line, with the backslashes before it.
_SPECIAL = re.compile(r"(\s*)(\\*)(?=#{1,6}(?:[ \t]|$)|```|~~~|<!--|\*\*Impact\b|([-*_])(?:[ \t]*\3){2,}[ \t]*$)")
IMPACT_LABEL = re.compile(r" {0,3}\*\*Impact\s*(?::\*\*|\*\*:)[ \t]*(.*)$")
MARKER = re.compile(r" {0,3}<!-- torchtriage: *([^>]*?) *-->\s*$")      # our hidden comment on a separate line


def is_rule(line: TextLine) -> bool:
    return line.kind == TEXT and bool(_RULE.match(line.text))


def content(lines: Sequence[TextLine]) -> list[TextLine]:
    """The lines of a section without surrounding blank lines and without the rule that separates it from the next."""
    return _without_blank_start(_without_end(lines))


def read_passage(lines: Sequence[TextLine], first: str = "") -> str:
    """The text in these lines; `first` is the text on the label's own line, before them."""
    if not first.strip():
        return "\n".join(_unescape(line) for line in content(lines))
    return "\n".join([first, *(_unescape(line) for line in _without_end(lines))])


def escape(text: str, level: int) -> str:
    """The text with the backslashes it needs to read back unchanged from a section whose heading has this level."""
    every, unclosed = scan(text)
    lines = _without_blank_start(_without_end(every, keep_rules=True))
    numbers = {line.number for line in unclosed}
    if lines and is_rule(lines[-1]):
        numbers.add(lines[-1].number)   # at the end it would be taken for the rule between sections
    texts = []
    for line in lines:
        needs_backslash = line.number in numbers or _is_special(line, level)
        texts.append(_with_backslash(line.text) if needs_backslash else line.text)
    return "\n".join(texts)


def starts_block(text: str) -> bool:
    """Whether a text must start on its own line instead of following a label."""
    first = text.split("\n", 1)[0]
    return first != first.lstrip() or bool(_SPECIAL.match(first))


def _without_end(lines: Sequence[TextLine], *, keep_rules: bool = False) -> Sequence[TextLine]:
    end = len(lines)
    while end and (lines[end - 1].is_blank or (not keep_rules and is_rule(lines[end - 1]))):
        end -= 1
    return lines[:end]


def _without_blank_start(lines: Sequence[TextLine]) -> list[TextLine]:
    start = next((i for i, line in enumerate(lines) if not line.is_blank), len(lines))
    return list(lines[start:])


def _is_special(line: TextLine, level: int) -> bool:
    """Whether a line would read back as something else without a backslash."""
    if line.kind == COMMENT:
        return line.opens and bool(MARKER.match(line.text))
    if line.kind != TEXT:
        return False
    special = _SPECIAL.match(line.text)
    has_backslash = special is not None and bool(special[2])
    return has_backslash or begins_section(line.text, level) or bool(IMPACT_LABEL.match(line.text))


def _with_backslash(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return f"{text[:indent]}\\{text[indent:]}"


def _unescape(line: TextLine) -> str:
    special = _SPECIAL.match(line.text) if line.kind == TEXT else None
    if special is None or not special[2]:
        return line.text
    at = special.end(1)
    return line.text[:at] + line.text[at + 1:]
