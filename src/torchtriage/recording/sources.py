"""The source lines around a place, recorded so that a finding can be shown without the program's files."""

import linecache
import re

from torchtriage.recording.recording import Source

CONTEXT = 3
MAX_LINE = 300
_SCOPE = re.compile(r"(\s*)(?:async\s+)?(class|def)\s+(\w+)")


def source_around(path: str, line: int) -> Source | None:
    """The lines around a place and the qualified name of the function there; None if the file cannot be read."""
    try:
        lines = linecache.getlines(path)
    except ValueError:      # a null byte in the name
        return None
    if not 0 < line <= len(lines):
        return None
    first = max(1, line - CONTEXT)
    context = tuple(text.rstrip("\n")[:MAX_LINE] for text in lines[first - 1: line + CONTEXT])
    return Source(first_line=first, lines=context, qualname=qualname_at(lines, line))


def qualname_at(lines: list[str], line: int) -> str:
    """The dotted name of the function that contains a line, by indentation: `Policy.forward`."""
    names: list[str] = []
    start = _definition_below(lines, line)
    indent = _indent(lines[start - 1]) + bool(_SCOPE.match(lines[start - 1]))
    for text in reversed(lines[:start]):
        # A bracket that closes a signature is left of the body, but it does not end a block.
        if _indent(text) >= indent or not text.strip() or text.lstrip()[0] in "#)]}":
            continue
        indent = _indent(text)
        scope = _SCOPE.match(text)
        if scope:
            names.append(scope[3])
        if indent == 0:
            break
    return ".".join(reversed(names))


def _definition_below(lines: list[str], line: int) -> int:
    """The line of the `def` or `class` below a decorator, which may be a code object's first line; else `line`."""
    if not lines[line - 1].lstrip().startswith("@"):
        return line
    indent = _indent(lines[line - 1])
    for number in range(line, len(lines) + 1):
        scope = _SCOPE.match(lines[number - 1])
        if scope and len(scope[1]) == indent:
            return number
    return line


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
