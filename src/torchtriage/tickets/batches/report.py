"""Write a batch report from the tickets of a batch, without losing any text written by a person.

Each derived part is between two hidden lines, `<!-- torchtriage: derived KEY -->` and `<!-- torchtriage: end -->`.
When a report is rewritten, only the text between such a pair is replaced; everything else stays byte for byte. A pair
that somebody removed stays removed; a file that is new in the batch gets its section at the end of the file-by-file
analysis.

A handwritten report without any such line is refused: its tables may list findings that have no ticket, and replacing
them would lose those findings. To keep one of its tables up to date, put the pair of lines around it; the keys are
files, executive-summary, cross-cutting, missing-tests, memory, severity-summary, detailed-findings, recommendations,
main-concerns. Tickets do not say which PyTorch version a feature needs, so without the reviewed source the version
matrix is left to people. `source_sections.py` has the parts that follow from the source.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.errors import TriageError
from torchtriage.text import listed, row
from torchtriage.tickets.batches.parse import BatchReport, FileAnalysis
from torchtriage.tickets.batches.sections import (
    EMPTY,
    FINDINGS,
    NO_FINDINGS,
    derived_parts,
    file_labels,
    files_of,
    findings_key,
    table,
)
from torchtriage.tickets.batches.source_facts import SourceFacts
from torchtriage.tickets.batches.source_sections import (
    ALLOCATIONS,
    COMPILES,
    CONCERNS,
    FILES,
    FOCUS,
    OTHERS,
    UNTESTED,
    VERSIONS,
    about_key,
    is_source_key,
    source_parts,
)
from torchtriage.tickets.checks.matching import base_name
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.markdown.lines import heading_of, scan
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.naming import batch_name, batch_of

_BEGIN = re.compile(r"[ \t]*<!-- torchtriage: derived (\S+(?: \S+)?) -->\s*")
_END = re.compile(r"[ \t]*<!-- torchtriage: end -->\s*")
_CONFLICT = re.compile(r"(<{7}|>{7}) ")
END = "<!-- torchtriage: end -->"
_SEPARATOR = "\n\n---\n\n"
BLOCK_GAP = "\n\n"       # a list after a label needs a blank line
NO_REPORT = BatchReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A part of a report's text; `key` is empty for text written by people, which includes the marker lines."""

    text: str
    key: str = ""


def render_batch(
    batch: str, files: Sequence[TicketFile], existing: str | None, imported: BatchReport = NO_REPORT,
    facts: SourceFacts | None = None,
) -> str:
    """The report of one batch; `existing` is its earlier text with unchanged line endings.

    A new report takes over what people wrote in the report that the tickets were imported from. With `facts`, the
    report is about that source, with or without findings.
    """
    batch = batch_name(batch)
    tickets = sorted((file.ticket for file in files if batch_of(file.ticket) == batch), key=_order)
    if not tickets and facts is None:
        batches = sorted({batch_of(file.ticket) for file in files} - {""})
        available = f"there are tickets of {listed(batches)}" if batches else "no ticket names a batch"
        raise TriageError(f"no ticket belongs to batch {batch}; {available}")
    if existing is not None and existing.strip():
        return _rewrite_report(existing, tickets, facts)
    if facts is None:
        return _new_report(batch, tickets, imported)
    return _new_review(batch, tickets, facts)


def is_derived(text: str) -> bool:
    """Whether a report was written by torchtriage, or has parts that it keeps up to date."""
    return any(_BEGIN.fullmatch(line) for line in text.splitlines())


def _order(ticket: Ticket) -> list[tuple[int, str]]:
    """A sort key that puts B7-PT-2 before B7-PT-10."""
    key = []
    for part in re.split(r"(\d+)", ticket.id):
        is_number = part.isdecimal() and len(part) < 10
        key.append((int(part), "") if is_number else (0, part))
    return key


def _block(key: str, text: str) -> str:
    return f"<!-- torchtriage: derived {key} -->\n\n{text}\n\n{END}"


def _new_report(batch: str, tickets: Sequence[Ticket], imported: BatchReport) -> str:
    parts = {key: _block(key, text) for key, text in derived_parts(tickets).items()}
    labels = file_labels(files_of(tickets))
    focus = f"**Reviewer Focus:** {imported.focus or EMPTY}"
    head = f"# Batch {batch} Code Review\n\n{focus}\n\n**Files Reviewed:**\n\n{parts['files']}"
    analyses = [
        _file_section(number, labels[file], parts[findings_key(file)], _analysis_of(file, imported))
        for number, file in enumerate(labels, start=1)
    ]
    cross_cutting = "\n\n".join([
        "## Cross-Cutting Integration Risks", "### 1. Findings in Several Files", parts["cross-cutting"],
        "### 2. Missing Test Coverage", parts["missing-tests"], "### 3. Memory Pressure Analysis", parts["memory"],
        *([imported.memory] if imported.memory else []),
    ])
    chapters = [
        head,
        "\n\n".join(["## Executive Summary", *filter(None, [imported.summary]), parts["executive-summary"]]),
        "## File-by-File Analysis\n\n" + (_SEPARATOR.join(analyses) or EMPTY),
        cross_cutting,
        f"## Severity Summary\n\n{parts['severity-summary']}",
        f"## Detailed Findings Table\n\n{parts['detailed-findings']}",
        f"## Recommendations\n\n{parts['recommendations']}",
        f"## PyTorch Version Compatibility Matrix\n\n{_versions(imported)}",
        "\n\n".join(["## Conclusion", *filter(None, [imported.conclusion]), parts["main-concerns"]]),
    ]
    return _SEPARATOR.join(chapters) + "\n"


def _new_review(batch: str, tickets: Sequence[Ticket], facts: SourceFacts) -> str:
    """A new report about source, with places for what people write."""
    parts = {
        key: _block(key, text)
        for key, text in (derived_parts(tickets, _paths(facts)) | source_parts(facts, tickets)).items()
    }
    labels = file_labels([*files_of(tickets), *_paths(facts)])
    subject = f": {facts.domain}" if facts.domain else ""
    files = sorted(set(files_of(tickets)) - {""})
    analyses = [_review_section(number, file, labels[file], parts) for number, file in enumerate(files, start=1)]
    cross_cutting = [
        "## Cross-Cutting Integration Risks", "### 1. torch.compile Compatibility", parts[COMPILES],
        "### 2. Missing Test Coverage", parts["missing-tests"], parts[UNTESTED],
        "### 3. Memory Pressure Analysis", parts["memory"], parts[ALLOCATIONS],
        "### 4. Findings in Several Files", parts["cross-cutting"],
    ]
    strengths = _labelled("Key Strengths", "")
    chapters = [
        f"# Batch {batch} Code Review{subject}\n\n{parts[FOCUS]}\n\n**Files Reviewed:**\n\n{parts[FILES]}",
        BLOCK_GAP.join(["## Executive Summary", parts["executive-summary"], strengths, parts[CONCERNS]]),
        "## File-by-File Analysis\n\n" + _SEPARATOR.join([parts[OTHERS], *analyses]),
        BLOCK_GAP.join(cross_cutting),
        f"## Severity Summary\n\n{parts['severity-summary']}",
        f"## Detailed Findings Table\n\n{parts['detailed-findings']}",
        f"## Recommendations\n\n{parts['recommendations']}",
        f"## PyTorch Version Compatibility Matrix\n\n{parts[VERSIONS]}",
        f"## Conclusion\n\n{EMPTY}\n\n{parts['main-concerns']}",
    ]
    return _SEPARATOR.join(chapters) + "\n"


def _paths(facts: SourceFacts | None) -> list[str]:
    return [file.path for file in facts.files] if facts else []


def _review_section(number: int, file: str, label: str, parts: Mapping[str, str]) -> str:
    lines = [f"### {number}. {label}", parts[about_key(file)], "**Findings:**", parts[findings_key(file)]]
    return BLOCK_GAP.join([*lines, _labelled("Strengths", ""), _labelled("Code Quality", "")])


def _analysis_of(file: str, report: BatchReport) -> FileAnalysis | None:
    return next((each for each in report.analyses if base_name(each.file) == base_name(file)), None)


def _versions(report: BatchReport) -> str:
    """The version matrix of the imported report, with the columns that it has."""
    if not report.versions:
        return EMPTY
    return table([name.title() for name in report.versions[0].cells], [row.cells.values() for row in report.versions])


def _file_section(number: int, label: str, findings: str, written: FileAnalysis | None = None) -> str:
    """The section about one file; what people wrote about it in an imported report is taken over."""
    lines = [f"### {number}. {label}", _labelled("Purpose", written.purpose if written else "")]
    lines += ["**Findings:**", findings, _labelled("Strengths", written.strengths if written else "")]
    lines.append(_labelled("Code Quality", written.code_quality if written else ""))
    if written and written.prose:
        lines.append(_labelled("Notes", written.prose))
    return "\n\n".join(lines)


def _labelled(label: str, text: str) -> str:
    return f"**{label}:**{BLOCK_GAP if text.startswith(('-', '*', '1')) else ' '}{text or EMPTY}"


def _rewrite_report(existing: str, tickets: Sequence[Ticket], facts: SourceFacts | None) -> str:
    parts = list(split(existing))
    reviewed = _paths(facts) or _reviewed(parts)
    file_parts = [at for at, part in enumerate(parts) if part.key.startswith(f"{FINDINGS} ")]
    derived = {parts[at].key: NO_FINDINGS for at in file_parts} | derived_parts(tickets, reviewed)
    derived |= source_parts(facts, tickets) if facts else {}
    keys = [part.key for part in parts if part.key]
    _check_keys([key for key in keys if not is_source_key(key)], list(derived))
    newline = "\r\n" if "\r\n" in existing else "\n"
    texts = []
    for part in parts:
        is_replaced = part.key in derived
        texts.append(f"\n{derived[part.key]}\n\n".replace("\n", newline) if is_replaced else part.text)
    anchor = file_parts or [at for at, part in enumerate(parts) if part.key == OTHERS]
    if anchor:
        labels = file_labels([*files_of(tickets), *reviewed])
        new_sections = _new_sections([parts[at].key for at in file_parts], tickets, derived, labels)
        after = anchor[-1] + 1
        texts[after] = _with_sections(texts[after], new_sections.replace("\n", newline), newline)
    return "".join(texts)


def _check_keys(keys: Sequence[str], valid: Sequence[str]) -> None:
    if not keys:
        raise TriageError(
            "this report was written by hand (it has no torchtriage markers), and replacing its tables could lose "
            "findings; write to another file, or put <!-- torchtriage: derived severity-summary --> and "
            f"{END} around each table that may be replaced"
        )
    for key in keys:
        if key not in valid:
            near = difflib.get_close_matches(key, valid, n=1)
            names = row(each for each in valid if not each.startswith(f"{FINDINGS} "))
            hint = f"did you mean {near[0]!r}?" if near else f"valid: {names}"
            raise TriageError(f"unknown derived part {key!r}; {hint}")


def _reviewed(parts: Iterable[ReportPart]) -> list[str]:
    """The files that a review listed in the report."""
    listed_files = "".join(part.text for part in parts if part.key == FILES)
    return re.findall(r"^\d+\. `(.+)`$", listed_files, re.M)


def _new_sections(
    keys: Sequence[str], tickets: Sequence[Ticket], derived: Mapping[str, str], labels: Mapping[str, str],
) -> str:
    """The sections of files that the report does not have yet."""
    new_files = [file for file in sorted(set(files_of(tickets)) - {""}) if findings_key(file) not in keys]
    text = ""
    for number, file in enumerate(new_files, start=len(keys) + 1):
        keys_of_file = [key for key in (about_key(file), findings_key(file)) if key in derived]
        blocks = {key: _block(key, derived[key]) for key in keys_of_file}
        if about_key(file) in blocks:
            text += _review_section(number, file, labels[file], blocks) + _SEPARATOR
        else:
            text += _file_section(number, labels[file], blocks[findings_key(file)]) + _SEPARATOR
    return text


def _with_sections(text: str, new: str, newline: str) -> str:
    """The text with `new` before the next chapter, or at the end; no byte of `text` is lost."""
    if not new:
        return text
    for line in scan(text)[0]:
        heading = heading_of(line)
        if heading and heading[0] <= 2:
            return text[:line.start] + new + text[line.start:]
    if text.endswith(newline * 2):
        gap = ""
    elif text.endswith(newline):
        gap = newline
    else:
        gap = newline * 2
    return f"{text}{gap}{new}"


def split(text: str) -> Iterator[ReportPart]:
    """A report cut at its markers; the parts joined are the text."""
    lines: list[str] = []
    key, opened_at = "", 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        begin, end = _BEGIN.fullmatch(line), _END.fullmatch(line)
        if _CONFLICT.match(line):
            raise TriageError(f"line {number} of the report is a merge conflict marker; resolve the conflict first")
        if begin and key:
            raise TriageError(_unpaired(f"the derived part {key!r} of line {opened_at} has no end"))
        if end and not key:
            raise TriageError(_unpaired(f"the end marker on line {number} has no beginning"))
        if end:
            yield ReportPart(text="".join(lines), key=key)
            lines, key = [line], ""
        else:
            lines.append(line)
        if begin:
            yield ReportPart(text="".join(lines))
            lines, key, opened_at = [], begin[1], number
    if key:
        raise TriageError(_unpaired(f"the derived part {key!r} of line {opened_at} has no end"))
    yield ReportPart(text="".join(lines))


def _unpaired(reason: str) -> str:
    return f"the markers of the report do not pair: {reason}; restore the missing line"
