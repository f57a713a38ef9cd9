"""Decide whether two texts are about the same thing: by IDs, lines, code names, shared words."""

import re
from collections.abc import Iterable

from torchtriage.text import file_name

MIN_SHARED_WORDS = 3        # "memory leak" and "memory allocation" share one word but are two findings
MIN_SHARED_PART = 0.6       # of the shorter text: a title is compared with a full sentence

_ID = re.compile(r"(?<![\w-])((?:[A-Z]{1,4}\d{0,4}-){2,4})(\d{1,4})((?:/\d{1,4})*)(?![\w-])")
_LINES = re.compile(r"(?<![\w.])L?(\d{1,7})(?:\s*[-–]\s*L?(\d{1,7}))?(?!\w)")
_PLACE = re.compile(
    r"`?([\w/\\-]{1,200}(?:\.\w{1,20}){1,3})`?(?::|\s+(?:lines?\s+|L(?=\d)))(\d{1,7}(?:\s*[-–]\s*L?\d{1,7})?)"
)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_CODE_NAME = re.compile(r"@?([A-Za-z_][\w.]*)\s*(?:\(.*\))?")
_WORD_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_SMALL_WORDS = frozenset({
    "the", "and", "for", "from", "with", "not", "may", "can", "but", "this", "that", "when", "are", "has", "have",
    "does", "into", "under", "only", "which", "its", "without",
})
_LIBRARIES = ("torch.", "np.", "numpy.")    # many findings name these, so they identify none


def ids_in(text: str) -> tuple[str, ...]:
    """Finding and ticket IDs in order of appearance; `B7-GE-01/02` names two."""
    ids = []
    for match in _ID.finditer(text):
        numbers = [match[2], *match[3].split("/")[1:]]
        ids += [match[1] + number for number in numbers]
    return tuple(dict.fromkeys(ids))


def line_ranges(text: str) -> tuple[range, ...]:
    """`71-72, L131` as ranges that include the last line; empty for a text without line numbers."""
    ranges = []
    for first, last in _LINES.findall(text):
        start, end = int(first), int(last or first)
        ranges.append(range(min(start, end), max(start, end) + 1))
    return tuple(ranges)


def overlap(one: Iterable[range], other: Iterable[range]) -> bool:
    others = tuple(other)
    return any(a.start < b.stop and b.start < a.stop for a in one for b in others)


def same_lines(one: str, other: str) -> bool:
    """Whether two texts share a line number, or neither has one."""
    ranges, others = line_ranges(one), line_ranges(other)
    return overlap(ranges, others) if ranges and others else not ranges and not others


def places_in(text: str) -> list[tuple[str, str]]:
    """(file name, lines) wherever a text says `a.py:12`, `a.py L3-9` or `a.py lines 3-9`."""
    return [(base_name(file), lines) for file, lines in _PLACE.findall(text)]


def code_names(text: str) -> tuple[str, ...]:
    """Names of the project's own code in backticks, without the brackets of a call."""
    names = []
    for span in _CODE_SPAN.findall(text):
        match = _CODE_NAME.fullmatch(span.strip())
        if match:
            names.append(match[1].rstrip("."))
    return tuple(dict.fromkeys(name for name in names if not name.startswith(_LIBRARIES)))


def same_name(one: str, other: str) -> bool:
    """Whether two names may mean the same code: `check_all` is also `Detector.check_all`."""
    return one == other or one.endswith("." + other) or other.endswith("." + one)


def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case; names in code are split into words."""
    parts = [part.lower() for part in _WORD_PART.findall(text)]
    return frozenset(part for part in parts if len(part) > 2 and part not in _SMALL_WORDS)


def alike(one: str, other: str) -> bool:
    """Whether two texts share enough words to be about the same thing."""
    words, others = words_of(one), words_of(other)
    shared = len(words & others)
    return shared >= MIN_SHARED_WORDS and shared >= MIN_SHARED_PART * min(len(words), len(others))


def base_name(path: str) -> str:
    """The file name at the end of a path in a ticket or report."""
    return file_name(path.strip())


def same_file(one: str, other: str) -> bool:
    """Whether one path is a suffix of the other: a ticket's path is relative, or comes from another machine."""
    short, long = sorted((_path_parts(one), _path_parts(other)), key=len)
    return bool(short) and long[-len(short):] == short


def same_base(one: str, other: str) -> bool:
    return _path_parts(one)[-1:] == _path_parts(other)[-1:]


def _path_parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
