"""The lines of a Markdown text, each with its position, each known as text, code or comment."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

TEXT, CODE, COMMENT = "text", "code", "comment"

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_COMMENT = re.compile(r" {0,3}<!--")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """`start` and `end` are offsets into the text, `end` after the line ending.

    `opens` is True on the first line of a code fence or comment.
    """

    number: int
    start: int
    end: int
    text: str
    kind: str = TEXT
    opens: bool = False

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A fenced code block without its fence lines."""

    language: str
    lines: tuple[str, ...]


def scan(text: str) -> tuple[list[TextLine], list[TextLine]]:
    """(all lines, the lines that open a fence or comment which is never closed); an unclosed block counts as text."""
    spans = [(match.start(), match.end(), match[1]) for match in _LINE.finditer(text) if match.end() > match.start()]
    texts = [span[2] for span in spans]
    kinds = [(TEXT, False)] * len(spans)
    unclosed: list[int] = []
    # The shortest unclosed opener per kind: a longer one further down is not closed either. This keeps scan linear.
    hopeless: dict[str, int] = {}
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
        TextLine(number=i + 1, start=start, end=end, text=content, kind=kinds[i][0], opens=kinds[i][1])
        for i, (start, end, content) in enumerate(spans)
    ]
    return lines, [lines[i] for i in unclosed]


def _opener(text: str) -> tuple[str, str]:
    """(kind of the block that a line opens, its opening mark); the mark is empty if the line opens no block."""
    fence = _FENCE.match(text)
    if fence and not (fence[1][0] == "`" and "`" in fence[2]):
        return CODE, fence[1]
    return (COMMENT, "<!--") if _COMMENT.match(text) else (TEXT, "")


def _closing(texts: Sequence[str], index: int, mark: str) -> int | None:
    """The index of the line that closes the block opened at `index`; None if no line does."""
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
    """(level, title) of a heading; None for any other line."""
    match = _HEADING.match(text)
    return (len(match[1]), (match[2] or "").strip()) if match else None


def heading_of(line: TextLine) -> tuple[int, str] | None:
    """(level, title) of a heading outside code and comments; None for any other line."""
    return heading(line.text) if line.kind == TEXT else None


def fences(text: str) -> Iterator[Fence]:
    """The fenced code blocks of a text; an unclosed fence is not code."""
    language = ""
    inside: list[str] = []
    lines = scan(text)[0]
    for line, below in zip_longest(lines, lines[1:]):
        if line.kind != CODE:
            continue
        if line.opens:
            language, inside = line.text.strip().strip("`~").split(" ")[0].lower(), []
        elif below is not None and below.kind == CODE and not below.opens:
            inside.append(line.text)
        else:
            yield Fence(language=language, lines=tuple(inside))
