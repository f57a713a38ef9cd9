"""The source around a place: its function, kept with the run so that a finding needs no access to the program."""

import linecache
import re

from torchtriage.recording.recording import Source
from torchtriage.text import CELL

CONTEXT = 3         # lines on each side of a place that a report shows
MAX_FUNCTION = 200  # lines; of a longer function only the lines around the place are kept
TOP_LEVEL = 30      # lines kept on each side of a place outside any function: what a script does with it
MAX_LINE = 300
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/")     # its source needs no advice
_SCOPE = re.compile(r"(\s*)(?:async\s+)?(class|def)\s+(\w+)")
_cell_files: dict[str, str] = {}    # path of a notebook cell in events -> the name under which linecache has its source


def cell_path(number: str) -> str:
    """The path that events have for a cell of a notebook."""
    return f"{CELL}In[{number}]"


def name_cell(number: str, file: str) -> None:
    """Find the source of a cell in this file from now on."""
    _cell_files[cell_path(number)] = file


def source_around(path: str, line: int, *, with_class: bool = False) -> Source | None:
    """The function at a place, or a few lines around it, and its qualified name; None if the file cannot be read.

    `with_class`: the class around the function too, which shows what its other methods do with an attribute.
    """
    try:
        lines = linecache.getlines(_cell_files.get(path, path))
    except ValueError:      # a null byte in the name
        return None
    if not 0 < line <= len(lines):
        return None
    first, last = line, line
    if not is_installed(path):
        first, last = _definition_around(lines, line, "def")
        if with_class and first != last:
            outer = _definition_around(lines, line, "class")
            first, last = outer if outer[0] != outer[1] and outer[1] - outer[0] < MAX_FUNCTION else (first, last)
        if first == last or last - first >= MAX_FUNCTION:
            first, last = max(1, line - TOP_LEVEL), line + TOP_LEVEL
    first, last = min(first, max(1, line - CONTEXT)), max(last, line + CONTEXT)
    kept = tuple(text.rstrip("\n")[:MAX_LINE] for text in lines[first - 1: last])
    return Source(first_line=first, lines=kept, qualname=qualname_at(lines, line))


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed package or to Python."""
    return bool(_INSTALLED.search(path.replace("\\", "/")))


def _definition_around(lines: list[str], line: int, keyword: str) -> tuple[int, int]:
    """First and last line of the innermost `def` or `class` that holds a line, decorators included.

    The line itself if there is none.
    """
    start = _definition_below(lines, line)
    while start > 0 and not _is_definition_above(lines, start, line, keyword):
        start -= 1
    if start == 0:
        return line, line
    indent = _indent(lines[start - 1])
    last = start
    for number in range(start + 1, min(len(lines), start + MAX_FUNCTION + 1) + 1):
        text = lines[number - 1]
        if text.strip() and _indent(text) <= indent and text.lstrip()[0] not in "#)]}":
            break
        last = number
    first = start
    while first > 1 and lines[first - 2].lstrip().startswith("@") and _indent(lines[first - 2]) == indent:
        first -= 1
    return (first, last) if first <= line <= last else (line, line)


def _is_definition_above(lines: list[str], start: int, line: int, keyword: str) -> bool:
    """Whether the definition at `start` holds the line: nothing between them is indented less than its body."""
    scope = _SCOPE.match(lines[start - 1])
    if scope is None or scope[2] != keyword:
        return False
    indent = len(scope[1])
    between = lines[start: line - 1] if line > start else []
    body = [text for text in (*between, lines[line - 1]) if text.strip() and text.lstrip()[0] not in "#)]}@"]
    return start >= line or all(_indent(text) > indent for text in body)


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
