"""Compare the code that a ticket quotes with the lines that it names."""

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath

from torchtriage.files import read_regular
from torchtriage.text import counted, row
from torchtriage.tickets.checks.matching import line_ranges, overlap
from torchtriage.tickets.checks.ticket import MAX_LISTED, is_ended, problem
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.markdown.lines import fences
from torchtriage.tickets.model import Problem

_CODE = frozenset({"python", "py", "python3", "c", "cpp", "c++", "cuda"})
_SPACE = re.compile(r"\s+")
_ELISION = re.compile(r"\s*(#|//)?\s*(\.\.\.|…)\s*")
MAX_ELIDED = 200                # characters that `...` in a quoted line may replace
MAX_FILE_BYTES = 5_000_000      # larger files are generated, and nobody quotes them


class SourceText:
    """A file as one string without white space and comments: a quote may be wrapped and indented differently."""

    def __init__(self, text: str) -> None:
        self.starts: list[int] = []
        self.numbers: list[int] = []
        parts: list[str] = []
        length = 0
        for number, line in enumerate(text.split("\n"), start=1):
            part = squeeze(line)
            if part:
                self.starts.append(length)
                self.numbers.append(number)
                parts.append(part)
                length += len(part)
        self.text = "".join(parts)

    def places(self, quote: str) -> list[range]:
        """The lines of every occurrence of a squeezed quote; `...` in it matches any short text."""
        first, *rest = [part for part in quote.split("...") if part] or [""]
        places: list[range] = []
        start = self.text.find(first) if first else -1
        while start >= 0:
            end = self._end(start + len(first), rest)
            if end >= 0:
                places.append(range(self._line(start), self._line(end - 1) + 1))
            start = self.text.find(first, start + len(first))
        return places

    def _end(self, end: int, rest: Sequence[str]) -> int:
        """The end of the last of these parts, each a short distance after the one before; -1 if a part is missing."""
        for part in rest:
            at = self.text.find(part, end, end + MAX_ELIDED + len(part))
            if at < 0:
                return -1
            end = at + len(part)
        return end

    def _line(self, offset: int) -> int:
        return self.numbers[bisect.bisect_right(self.starts, offset) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Consecutive lines of quoted code; `is_code` is True if the fence names a programming language."""

    lines: tuple[str, ...]
    is_code: bool


_Sources = Sequence[tuple[str, SourceText]]     # the files of a ticket: path below the root, text
_Place = tuple[str, range]                      # path below the root, lines


def code_problems(files: Sequence[TicketFile], root: Path) -> Iterator[Problem]:
    """Quotes that differ from the source; tickets that have ended are skipped, as their code was meant to change."""
    cache: dict[Path | None, SourceText | None] = {None: None}
    missing: dict[str, list[str]] = {}
    for file in files:
        if is_ended(file):
            continue
        sources: list[tuple[str, SourceText]] = []
        for name in file.ticket.files:
            path = find_file(root, name)
            if path not in cache:
                cache[path] = _source(path)
            source = cache[path]
            if path is None or source is None:
                missing.setdefault(name, []).append(file.ticket.id)
            else:
                sources.append((path.relative_to(root).as_posix(), source))
        if sources and len(sources) == len(file.ticket.files):
            yield from _quote_problems(file, sources)
    if missing:
        yield _missing_files(missing, root)


def _missing_files(missing: dict[str, list[str]], root: Path) -> Problem:
    names = row((f"{name} ({', '.join(ids)})" for name, ids in sorted(missing.items())), MAX_LISTED)
    verb = "is" if len(missing) == 1 else "are"
    message = (
        f"{counted(len(missing), 'file')} named by tickets {verb} not below {root}, "
        f"so the quoted code was not compared: {names}"
    )
    return Problem(path=str(root), line=None, kind="file-missing", message=message)


def _source(path: Path | None) -> SourceText | None:
    if path is None:
        return None
    try:
        text = read_regular(path, MAX_FILE_BYTES, follow=True).decode("utf-8", "replace")
        return SourceText(text.replace("\r\n", "\n"))
    except OSError:
        return None


def find_file(root: Path, name: str) -> Path | None:
    """The file below `root` that a ticket names, by its path or by the longest suffix of it that exists.

    A path that was written on another machine is found by its suffix.
    """
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    for start in range(len(parts)):
        path = root.joinpath(*parts[start:])
        try:
            if path.is_file():
                return path
        except (OSError, ValueError):       # not a valid name in this file system
            return None
    return None


def _quote_problems(file: TicketFile, sources: _Sources) -> Iterator[Problem]:
    """At most one problem per ticket: for missing code, otherwise for code that moved."""
    quote_places: list[list[_Place]] = []
    absent: list[str] = []
    for quote in _quotes(file.ticket.wrong, sources):
        places = _places(quote.lines, sources)
        if places:
            quote_places.append(places)
            continue
        present = [line for line in quote.lines if _places((line,), sources)]
        # Program output, or code of another file, may share a line by chance.
        is_from_file = quote.is_code or 2 * len(present) > len(quote.lines)
        if is_from_file:
            absent += [line for line in quote.lines if line not in present]
        if is_from_file and present:
            quote_places.append(_places((max(present, key=len),), sources))
    if absent:
        yield _absent_code(file, absent, sources)
        return
    moved = _moved(file.ticket.lines, quote_places)
    if moved:
        message = f"{file.ticket.id} gives lines {file.ticket.lines}, but the quoted code is now at {moved}"
        yield problem(file, "lines", "lines-moved", f"{message}; correct the lines")


def _absent_code(file: TicketFile, absent: Sequence[str], sources: _Sources) -> Problem:
    names = row(name for name, _ in sources)
    more = f" (and {counted(len(absent) - 1, 'more line')})" if len(absent) > 1 else ""
    message = (
        f"{file.ticket.id} quotes code that is not in {names}: {absent[0].strip()!r}{more}; "
        "correct the quote, or end the ticket if it was fixed"
    )
    line = _line_in(file.text, absent[0])
    return Problem(path=str(file.path), line=line, kind="code-not-in-file", message=message)


def _moved(lines: str, quotes: Sequence[Sequence[_Place]]) -> str:
    """Where quotes outside the ticket's lines are now, provided that some of the ticket's lines are not quoted."""
    ranges = line_ranges(lines)
    quoted = [place for places in quotes for _, place in places]
    if all(overlap([wanted], quoted) for wanted in ranges):
        return ""
    texts = []
    for places in quotes:
        if overlap(ranges, [place for _, place in places]):
            continue
        name, nearest = min(places, key=lambda place: abs(place[1].start - ranges[0].start))
        end = f"-{nearest[-1]}" if len(nearest) > 1 else ""
        texts.append(f"{name}:{nearest.start}{end}")
    return ", ".join(texts)


def _places(lines: Sequence[str], sources: _Sources) -> list[_Place]:
    quote = "".join(squeeze(line) for line in lines)
    return [(name, place) for name, source in sources for place in source.places(quote)]


def _quotes(text: str, sources: _Sources) -> Iterator[Quote]:
    """The code in a text's fences, cut at elisions.

    Code that is not in the file as one block is also cut at blank lines and comments.
    """
    for fence in fences(text):
        if fence.language and fence.language not in _CODE:
            continue
        for block in _runs(fence.lines, lambda line: not _ELISION.fullmatch(line)):
            code = [line for line in block if squeeze(line)]
            runs = [code] if _places(code, sources) else _runs(block, squeeze)
            for run in runs:
                if run:
                    yield Quote(lines=tuple(run), is_code=bool(fence.language))


def _runs(lines: Sequence[str], belongs: Callable[[str], object]) -> list[list[str]]:
    """The consecutive lines for which `belongs` is true."""
    return [list(group) for is_in, group in groupby(lines, key=lambda line: bool(belongs(line))) if is_in]


def squeeze(line: str) -> str:
    """A line of code without its comment and its white space."""
    quote = ""
    for at, char in enumerate(line):
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
        elif not quote and (char == "#" or (line.startswith("//", at) and not line[:at].strip())):
            line = line[:at]
            break
    return _SPACE.sub("", line.replace("…", "..."))


def _line_in(text: str, line: str) -> int | None:
    at = text.find(line)
    return text.count("\n", 0, at) + 1 if at >= 0 else None
