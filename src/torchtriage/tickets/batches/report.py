"""Write a batch report from the tickets of a batch, and write it again without losing a word that a person wrote.

What follows from the tickets stands between two hidden lines, `<!-- torchtriage: derived KEY -->` and `<!-- torchtriage: end -->`.
When a report is written again, only the text between such a pair is replaced; everything else stays byte for byte. A pair that
somebody took out stays out; a file that is new in the batch gets its section at the end of the file-by-file analysis.

A report written by hand, without any such line, is refused: its tables may hold findings that have no ticket, and replacing
them would lose these. Who wants one of its tables to be kept up to date puts the pair of lines around it; the keys are
files, executive-summary, cross-cutting, missing-tests, memory, severity-summary, detailed-findings, recommendations, main-concerns.
Which version of a feature the code needs cannot be read from tickets, so the version matrix is left to people.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.errors import TriageError
from torchtriage.tickets.batches.sections import FINDINGS, NO_FINDINGS, NOTHING, derived, findings_key, labels
from torchtriage.tickets.checks.matching import batch_name, batch_of
from torchtriage.tickets.markdown.lines import TEXT, heading, scan
from torchtriage.tickets.model import Ticket, TicketFile

_BEGIN = re.compile(r"[ \t]*<!-- torchtriage: derived (\S+(?: \S+)?) -->\s*")
_END = re.compile(r"[ \t]*<!-- torchtriage: end -->\s*")
_CONFLICT = re.compile(r"(<{7}|>{7}) ")
END = "<!-- torchtriage: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a report as it stands; `key` is empty for what people wrote, the marker lines included."""

    text: str
    key: str = ""


def render_batch(batch: str, files: Sequence[TicketFile], existing: str | None) -> str:
    """The report of one batch; `existing` is its earlier text, read without changing its line ends."""
    batch = batch_name(batch)
    tickets = sorted((file.ticket for file in files if batch_of(file.ticket) == batch), key=_order)
    if not tickets:
        batches = sorted({batch_of(file.ticket) for file in files} - {""})
        found = f"there are tickets of {', '.join(batches)}" if batches else "no ticket names a batch"
        raise TriageError(f"no ticket belongs to batch {batch}; {found}")
    if existing is None or not existing.strip():
        return _new_report(batch, tickets)
    return _updated(existing, tickets)


def _order(ticket: Ticket) -> list[tuple[int, str]]:
    """B7-PT-2 before B7-PT-10."""
    return [(int(part), "") if part.isdecimal() and len(part) < 10 else (0, part) for part in re.split(r"(\d+)", ticket.id)]


def block(key: str, text: str) -> str:
    return f"<!-- torchtriage: derived {key} -->\n\n{text}\n\n{END}"


def _new_report(batch: str, tickets: Sequence[Ticket]) -> str:
    parts = {key: block(key, text) for key, text in derived(tickets).items()}
    names = labels(file for ticket in tickets for file in ticket.files)
    head = f"# Batch {batch} Code Review\n\n**Reviewer Focus:** {NOTHING}\n\n**Files Reviewed:**\n\n{parts['files']}"
    analyses = [_file_section(number, file, names, parts[findings_key(file)]) for number, file in enumerate(names, start=1)]
    cross_cutting = "\n\n".join([
        "## Cross-Cutting Integration Risks", "### 1. Findings in Several Files", parts["cross-cutting"],
        "### 2. Missing Test Coverage", parts["missing-tests"], "### 3. Memory Pressure Analysis", parts["memory"],
    ])
    chapters = [
        head,
        f"## Executive Summary\n\n{parts['executive-summary']}",
        "\n\n---\n\n".join(["## File-by-File Analysis\n\n" + (analyses[0] if analyses else NOTHING), *analyses[1:]]),
        cross_cutting,
        f"## Severity Summary\n\n{parts['severity-summary']}",
        f"## Detailed Findings Table\n\n{parts['detailed-findings']}",
        f"## Recommendations\n\n{parts['recommendations']}",
        f"## PyTorch Version Compatibility Matrix\n\n{NOTHING}",
        f"## Conclusion\n\n{parts['main-concerns']}",
    ]
    return "\n\n---\n\n".join(chapters) + "\n"


def _file_section(number: int, file: str, names: Mapping[str, str], table: str) -> str:
    return "\n\n".join([
        f"### {number}. {names[file]}", f"**Purpose:** {NOTHING}", "**Findings:**", table,
        f"**Strengths:** {NOTHING}", f"**Code Quality:** {NOTHING}",
    ])


def _updated(existing: str, tickets: Sequence[Ticket]) -> str:
    pieces = list(split(existing))
    parts = derived(tickets)
    of_files = [at for at, piece in enumerate(pieces) if piece.key.startswith(f"{FINDINGS} ")]
    parts = {**{pieces[at].key: NO_FINDINGS for at in of_files}, **parts}
    _check_keys([piece.key for piece in pieces if piece.key], list(parts))
    newline = "\r\n" if "\r\n" in existing else "\n"
    texts = [f"\n{parts[piece.key]}\n\n".replace("\n", newline) if piece.key else piece.text for piece in pieces]
    if of_files:
        new = _new_sections([pieces[at].key for at in of_files], tickets, parts).replace("\n", newline)
        behind = of_files[-1] + 1
        texts[behind] = _with_sections(texts[behind], new, newline)
    return "".join(texts)


def _check_keys(found: Sequence[str], known: Sequence[str]) -> None:
    if not found:
        raise TriageError(
            "this report was written by hand (no torchtriage markers in it), and replacing its tables could lose findings; "
            f"write to another file, or put <!-- torchtriage: derived severity-summary --> and {END} around each table that may be replaced"
        )
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            keys = ", ".join(each for each in known if not each.startswith(f"{FINDINGS} "))
            raise TriageError(f"no derived part is called {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {keys}"))


def _new_sections(keys: Sequence[str], tickets: Sequence[Ticket], parts: Mapping[str, str]) -> str:
    """The sections of files that the report does not have yet."""
    names = labels(file for ticket in tickets for file in ticket.files)
    new = [file for file in names if findings_key(file) not in keys]
    sections = [
        _file_section(number, file, names, block(findings_key(file), parts[findings_key(file)]))
        for number, file in enumerate(new, start=len(keys) + 1)
    ]
    return "".join(f"{section}\n\n---\n\n" for section in sections)


def _with_sections(text: str, new: str, newline: str) -> str:
    """`new` before the next chapter, or at the end; not a byte of `text` is lost."""
    if not new:
        return text
    for line in scan(text)[0]:
        found = heading(line.text) if line.kind == TEXT else None
        if found and found[0] <= 2:
            return text[:line.start] + new + text[line.start:]
    gap = "" if text.endswith(newline * 2) else newline if text.endswith(newline) else newline * 2
    return f"{text}{gap}{new}"


def split(text: str) -> Iterator[Piece]:
    """A report cut at its markers; the pieces joined are the text."""
    kept: list[str] = []
    key, opened_at = "", 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        begin, end = _BEGIN.fullmatch(line), _END.fullmatch(line)
        if _CONFLICT.match(line):
            raise TriageError(f"line {number} of the report is a merge conflict marker; resolve the conflict first")
        if (begin and key) or (end and not key):
            where = f"the derived part {key!r} of line {opened_at} has no end" if key else f"the end on line {number} has no beginning"
            raise TriageError(f"the markers of the report do not pair: {where}; put the missing line back")
        if end:
            yield Piece(text="".join(kept), key=key)
            kept, key = [line], ""
        else:
            kept.append(line)
        if begin:
            yield Piece(text="".join(kept))
            kept, key, opened_at = [], begin[1], number
    if key:
        raise TriageError(f"the markers of the report do not pair: the derived part {key!r} of line {opened_at} has no end; put it back")
    yield Piece(text="".join(kept))
