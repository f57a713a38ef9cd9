"""Compare the code that a ticket quotes with the file it names: is it there, and is it still at the lines the ticket says?"""

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath

from torchtriage.tickets.checks.matching import line_ranges, overlap
from torchtriage.tickets.checks.ticket import is_ended, problem, some
from torchtriage.tickets.markdown.batch_markdown import fences
from torchtriage.tickets.model import Problem, TicketFile

_CODE = frozenset({"python", "py", "python3", "c", "cpp", "c++", "cuda"})
_SPACE = re.compile(r"\s+")
_ELISION = re.compile(r"\s*(#|//)?\s*(\.\.\.|…)\s*")
MAX_ELIDED = 200                # characters that ... in a quoted line may stand for
MAX_FILE_BYTES = 5_000_000      # larger ones are generated, and nobody quotes them


class Source:
    """A file as one string without white space and comments, so that a quote may be wrapped and indented in another way."""

    def __init__(self, text: str) -> None:
        self.starts: list[int] = []
        self.numbers: list[int] = []
        pieces: list[str] = []
        length = 0
        for number, line in enumerate(text.split("\n"), start=1):
            piece = squeezed(line)
            if piece:
                self.starts.append(length)
                self.numbers.append(number)
                pieces.append(piece)
                length += len(piece)
        self.text = "".join(pieces)

    def places(self, quote: str) -> list[range]:
        """The lines at which a squeezed quote stands, wherever it does; `...` in it stands for anything short."""
        first, *rest = [part for part in quote.split("...") if part] or [""]
        found: list[range] = []
        start = self.text.find(first) if first else -1
        while start >= 0:
            end = self._end(start + len(first), rest)
            if end >= 0:
                found.append(range(self._line(start), self._line(end - 1) + 1))
            start = self.text.find(first, start + len(first))
        return found

    def _end(self, end: int, rest: Sequence[str]) -> int:
        """Where the last of these parts ends, each not far behind the one before; -1 if one is not there."""
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
    """Lines of code that follow each other in a quotation, and whether its fence says that it is code."""

    lines: tuple[str, ...]
    is_code: bool


def code_problems(files: Sequence[TicketFile], root: Path) -> Iterator[Problem]:
    """Tickets that have ended are passed over: their code was meant to change."""
    sources: dict[Path | None, Source | None] = {None: None}
    missing: dict[str, list[str]] = {}
    for file in files:
        if is_ended(file):
            continue
        found: list[tuple[str, Source]] = []
        for name in file.ticket.files:
            path = resolved(root, name)
            source = sources[path] = sources[path] if path in sources else _source(path)
            if path is None or source is None:
                missing.setdefault(name, []).append(file.ticket.id)
            else:
                found.append((path.relative_to(root).as_posix(), source))
        if found and len(found) == len(file.ticket.files):
            yield from _quote_problems(file, found)
    if missing:
        names = some([f"{name} ({', '.join(ids)})" for name, ids in sorted(missing.items())])
        message = f"{len(missing)} files that tickets name are not below {root}, so what they quote was not compared: {names}"
        yield Problem(path=str(root), line=None, kind="file-missing", message=message)


def _source(path: Path | None) -> Source | None:
    try:
        is_small = path is not None and path.stat().st_size <= MAX_FILE_BYTES
        return Source(path.read_text(encoding="utf-8", errors="replace")) if path and is_small else None
    except OSError:
        return None


def resolved(root: Path, name: str) -> Path | None:
    """The file below `root` that a ticket means: its path, or the longest end of it if it was written on another machine."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    for start in range(len(parts)):
        path = root.joinpath(*parts[start:])
        try:
            if path.is_file():
                return path
        except (OSError, ValueError):       # a name that no file system takes
            return None
    return None


def _quote_problems(file: TicketFile, sources: Sequence[tuple[str, Source]]) -> Iterator[Problem]:
    """One problem a ticket for what is missing, one for what moved."""
    stands: list[list[tuple[str, range]]] = []
    absent: list[str] = []
    for quote in _quotes(file.ticket.wrong, sources):
        places = _places(quote.lines, sources)
        if places:
            stands.append(places)
            continue
        known = [line for line in quote.lines if _places((line,), sources)]
        is_ours = quote.is_code or 2 * len(known) > len(quote.lines)     # output and other files share a line by chance
        if is_ours:
            absent += [line for line in quote.lines if line not in known]
        if is_ours and known:
            stands.append(_places((max(known, key=len),), sources))
    if absent:
        names = ", ".join(name for name, _ in sources)
        more = f" (and {len(absent) - 1} more lines)" if len(absent) > 1 else ""
        found = f"{file.ticket.id} quotes code that is not in {names}: {absent[0].strip()!r}{more}"
        message = f"{found}; correct the quote, or end the ticket if it was fixed"
        yield Problem(path=str(file.path), line=_line_in(file.text, absent[0]), kind="code-not-in-file", message=message)
    moved = _moved(file.ticket.lines, stands)
    if moved and not absent:
        message = f"{file.ticket.id} says lines {file.ticket.lines}, and the quoted code is now at {moved}; correct the lines"
        yield problem(file, "lines", "lines-moved", message)


def _moved(lines: str, quotes: Sequence[Sequence[tuple[str, range]]]) -> str:
    """Where quotes stand that lie outside the ticket's lines, as long as some of those lines are quoted by nothing."""
    ranges = line_ranges(lines)
    quoted = [place for places in quotes for _, place in places]
    if all(overlap([wanted], quoted) for wanted in ranges):
        return ""
    outside = [
        min(places, key=lambda place: abs(place[1].start - ranges[0].start))
        for places in quotes if not overlap(ranges, [place for _, place in places])
    ]
    return ", ".join(f"{name}:{place.start}" + (f"-{place[-1]}" if len(place) > 1 else "") for name, place in outside)


def _places(lines: Sequence[str], sources: Sequence[tuple[str, Source]]) -> list[tuple[str, range]]:
    quote = "".join(squeezed(line) for line in lines)
    return [(name, place) for name, source in sources for place in source.places(quote)]


def _quotes(text: str, sources: Sequence[tuple[str, Source]]) -> Iterator[Quote]:
    """The code in a text's fences, cut where something is left out, and at blank lines and comments where it does not stand as a whole."""
    for fence in fences(text):
        if fence.language and fence.language not in _CODE:
            continue
        for block in _runs(fence.lines, lambda line: not _ELISION.fullmatch(line)):
            code = tuple(line for line in block if squeezed(line))
            runs = [code] if _places(code, sources) else _runs(block, squeezed)
            yield from (Quote(lines=tuple(run), is_code=bool(fence.language)) for run in runs if run)


def _runs(lines: Sequence[str], belongs: Callable[[str], object]) -> list[list[str]]:
    return [list(group) for is_in, group in groupby(lines, key=lambda line: bool(belongs(line))) if is_in]


def squeezed(line: str) -> str:
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
