"""Where a batch report contradicts itself: its counts, its two tables, the priority of its recommendations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchtriage.findings.model import Severity
from torchtriage.tickets.batches.parse import BatchReport, FindingRow, Recommendation
from torchtriage.tickets.checks.matching import base_name, code_names, line_ranges, overlap, places_in, same_name, words_of
from torchtriage.tickets.checks.ticket import some
from torchtriage.tickets.model import Problem

_SEVERITIES = tuple(severity.name for severity in Severity)


def report_problems(path: str, report: BatchReport) -> Iterator[Problem]:
    for line, kind, message in (*_counts(report), *_named(report), *_tables(report), *_priorities(report)):
        yield Problem(path=path, line=line, kind=kind, message=message)


_Found = tuple[int | None, str, str]


def _counts(report: BatchReport) -> Iterator[_Found]:
    """The severity summary against the rows of the detailed table."""
    if not report.findings or not report.severity_rows:
        return
    rows = Counter(row.severity for row in report.findings)
    counted = {row.severity: row for row in report.severity_rows if row.severity in _SEVERITIES and row.count is not None}
    for severity, row in counted.items():
        if row.count != rows[severity]:
            listed = _rows_text(rows[severity], [each.id for each in report.findings if each.severity == severity])
            message = f"the severity summary counts {row.count} {severity}, the detailed table has {listed}; correct the count"
            yield row.line, "count-mismatch", message
    for severity in sorted({severity for severity in rows if severity in _SEVERITIES} - counted.keys()):
        message = f"the severity summary has no count for {severity}, the detailed table has {_rows_text(rows[severity], ())}; add it"
        yield report.severity_line, "count-mismatch", message
    totals = [row for row in report.severity_rows if "total" in row.severity.lower()]
    sums: list[tuple[int | None, str, int]] = [(row.line, "says in all", row.count) for row in totals if row.count is not None]
    if counted:
        sums.append((report.severity_line, "adds up to", sum(row.count or 0 for row in report.severity_rows if row not in totals)))
    for line, says, number in sums:
        if number != len(report.findings):
            message = f"the severity summary {says} {number} findings, the detailed table has {len(report.findings)}; correct the counts"
            yield line, "count-mismatch", message


def _rows_text(number: int, ids: Sequence[str]) -> str:
    named = f" ({some(ids, most=10)})" if ids else ""
    return f"{number} row{'' if number == 1 else 's'}{named}"


def _named(report: BatchReport) -> Iterator[_Found]:
    """What the severity summary names: as many as it counts, and of that severity."""
    severity_of = {row.id: row.severity for row in report.findings}
    for row in report.severity_rows:
        if row.ids and row.count is not None and len(row.ids) < row.count:
            unnamed = [each.id for each in report.findings if each.severity == row.severity and each.id not in row.ids]
            do = f"name {some(unnamed)} too" if unnamed else "name the others too, or correct the count"
            if unnamed or not report.findings:      # else the count is wrong, which is told
                yield row.line, "too-few-named", f"the severity summary counts {row.count} {row.severity} and names {len(row.ids)}; {do}"
        for each in row.ids:
            if row.severity in _SEVERITIES and severity_of.get(each, row.severity) != row.severity:
                message = f"{each} is {row.severity} in the severity summary and {severity_of[each]} in the detailed table; keep one"
                yield row.line, "two-severities", message


def _tables(report: BatchReport) -> Iterator[_Found]:
    """The detailed table by itself, and against the table of each file."""
    detailed = {row.id: row for row in report.findings}
    for finding_id, number in Counter(row.id for row in report.findings).items():
        if number > 1:
            message = f"{finding_id} stands {number} times in the detailed table; give each finding its own ID"
            yield detailed[finding_id].line, "duplicate-id", message
    if not report.findings or not report.per_file:
        return
    for row in report.per_file:
        other = detailed.get(row.id)
        if other is None:
            yield row.line, "row-missing", f"{row.id} is in the table of {row.file} and not in the detailed table; add it there"
        else:
            yield from _differences(row, other)
    per_file = {row.id for row in report.per_file}
    for row in report.findings:
        if row.id not in per_file and base_name(row.file) not in ("", "-"):
            yield row.line, "row-missing", f"{row.id} is in the detailed table and not in the table of {row.file}; add it there"


def _differences(row: FindingRow, other: FindingRow) -> Iterator[_Found]:
    where = f"in the table of {row.file} (line {row.line})"
    if row.severity != other.severity:
        yield other.line, "two-severities", f"{row.id} is {other.severity} in the detailed table and {row.severity} {where}; keep one"
    if line_ranges(row.lines) != line_ranges(other.lines):
        message = f"{row.id} is at lines {other.lines} in the detailed table and at {row.lines} {where}; correct one"
        yield other.line, "row-differs", message
    if base_name(row.file) not in other.file:
        yield other.line, "row-differs", f"{row.id} is in {other.file} by the detailed table and stands {where}; correct one"


def _priorities(report: BatchReport) -> Iterator[_Found]:
    """Recommendations whose finding has none of the severities of the heading they stand under."""
    texts = row_texts(report)
    for item in report.recommendations:
        rows = _rows_meant(item, report.findings, texts)
        if item.severities and rows and not any(row.severity in item.severities for row in rows):
            about = ", ".join(f"{row.id} ({row.severity})" for row in sorted(rows, key=lambda row: (row.severity, row.id)))
            message = f"{_short(item.text)!r} stands under {item.heading!r} and is about {about}; move it to its priority"
            yield item.line, "wrong-priority", message


def row_texts(report: BatchReport) -> dict[str, str]:
    """All that a report's tables say of each finding."""
    texts: dict[str, str] = {}
    for row in (*report.findings, *report.per_file):
        texts[row.id] = f"{texts.get(row.id, '')}\n{row.issue}".strip()
    return texts


def _rows_meant(item: Recommendation, rows: Iterable[FindingRow], texts: Mapping[str, str]) -> list[FindingRow]:
    """The findings an item names by ID; else those that name its code or lie at its lines, and with them those that share its words.

    Words alone never make a match, they only add to one: the more findings an item may mean, the less is said against its place.
    """
    rows = list(rows)
    if item.ids:
        return [row for row in rows if row.id in item.ids]
    names = code_names(item.text)
    places = places_in(item.text)
    sure = [row for row in rows if _names_code(names, texts[row.id]) or _is_at(row, places)]
    parts = [words for name in names if len(words := words_of(name)) > 1]
    return [row for row in rows if row in sure or any(words <= words_of(texts[row.id]) for words in parts)] if sure else []


def _names_code(names: Sequence[str], text: str) -> bool:
    return any(same_name(name, other) for name in names for other in code_names(text))


def _is_at(row: FindingRow, places: Sequence[tuple[str, str]]) -> bool:
    return any(file == base_name(row.file) and overlap(line_ranges(lines), line_ranges(row.lines)) for file, lines in places)


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:67] + "..."
