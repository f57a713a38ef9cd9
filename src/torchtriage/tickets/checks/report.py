"""Contradictions within a batch report: its counts, its two tables, the priority of its recommendations."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from torchtriage.findings.model import Severity
from torchtriage.text import counted, row
from torchtriage.tickets.batches.parse import BatchReport, FindingRow, Recommendation
from torchtriage.tickets.checks.matching import (
    base_name,
    code_names,
    line_ranges,
    overlap,
    places_in,
    same_name,
    words_of,
)
from torchtriage.tickets.checks.ticket import MAX_LISTED
from torchtriage.tickets.model import Problem

_SEVERITIES = tuple(severity.name for severity in Severity)
_MAX_LISTED_ROWS = 10
_MAX_QUOTE = 70
_Flaw = tuple[int | None, str, str]     # line number, kind, message
_Index = dict[str, list[int]]           # numbers of rows


def report_problems(path: str, report: BatchReport) -> Iterator[Problem]:
    for line, kind, message in (*_counts(report), *_names(report), *_tables(report), *_priorities(report)):
        yield Problem(path=path, line=line, kind=kind, message=message)


def _counts(report: BatchReport) -> Iterator[_Flaw]:
    """The counts of the severity summary against the rows of the detailed table."""
    if not report.findings or not report.severity_rows:
        return
    num_rows = Counter(finding.severity for finding in report.findings)
    counts = {
        each.severity: each for each in report.severity_rows
        if each.severity in _SEVERITIES and each.count is not None
    }
    for severity, summary in counts.items():
        if summary.count != num_rows[severity]:
            ids = [finding.id for finding in report.findings if finding.severity == severity]
            message = f"the severity summary counts {summary.count} {severity}, {_in_table(num_rows[severity], ids)}"
            yield summary.line, "count-mismatch", f"{message}; correct the count"
    for severity in sorted({severity for severity in num_rows if severity in _SEVERITIES} - counts.keys()):
        message = f"the severity summary has no count for {severity}, {_in_table(num_rows[severity], ())}"
        yield report.severity_line, "count-mismatch", f"{message}; add it"
    yield from _totals(report, has_counts=bool(counts))


def _in_table(number: int, ids: Sequence[str]) -> str:
    names = f" ({row(ids, _MAX_LISTED_ROWS)})" if ids else ""
    return f"the detailed table has {counted(number, 'row')}{names}"


def _totals(report: BatchReport, *, has_counts: bool) -> Iterator[_Flaw]:
    """The total of the severity summary, as given and as the sum of its rows."""
    total_rows = [each for each in report.severity_rows if "total" in each.severity.lower()]
    totals: list[tuple[int | None, str, int]] = [
        (each.line, "has a total of", each.count) for each in total_rows if each.count is not None
    ]
    if has_counts:
        added = sum(each.count or 0 for each in report.severity_rows if each not in total_rows)
        totals.append((report.severity_line, "adds up to", added))
    for line, verb, number in totals:
        if number != len(report.findings):
            message = (
                f"the severity summary {verb} {counted(number, 'finding')}, "
                f"the detailed table has {len(report.findings)}; correct the counts"
            )
            yield line, "count-mismatch", message


def _names(report: BatchReport) -> Iterator[_Flaw]:
    """The findings that the severity summary names: as many as it counts, and of that severity."""
    severity_of = {finding.id: finding.severity for finding in report.findings}
    for summary in report.severity_rows:
        severity = summary.severity
        if summary.ids and summary.count is not None and len(summary.ids) < summary.count:
            unnamed = [
                finding.id for finding in report.findings
                if finding.severity == severity and finding.id not in summary.ids
            ]
            hint = f"name {row(unnamed, MAX_LISTED)} too" if unnamed else "name the others too, or correct the count"
            if unnamed or not report.findings:      # otherwise the count is wrong, which is reported as a mismatch
                message = f"the severity summary counts {summary.count} {severity} but names {len(summary.ids)}"
                yield summary.line, "too-few-named", f"{message}; {hint}"
        for each in summary.ids:
            other = severity_of.get(each, severity)
            if severity in _SEVERITIES and other != severity:
                message = f"{each} is {severity} in the severity summary, but {other} in the detailed table; keep one"
                yield summary.line, "two-severities", message


def _tables(report: BatchReport) -> Iterator[_Flaw]:
    """The detailed table by itself, and against the table of each file."""
    detailed = {finding.id: finding for finding in report.findings}
    for finding_id, number in Counter(finding.id for finding in report.findings).items():
        if number > 1:
            message = f"{finding_id} is in the detailed table {number} times; give each finding its own ID"
            yield detailed[finding_id].line, "duplicate-id", message
    if not report.findings or not report.per_file:
        return
    for finding in report.per_file:
        other = detailed.get(finding.id)
        if other is None:
            message = f"{finding.id} is in the table of {finding.file}, but not in the detailed table; add it there"
            yield finding.line, "row-missing", message
        else:
            yield from _differences(finding, other)
    per_file = {finding.id for finding in report.per_file}
    for finding in report.findings:
        if finding.id not in per_file and base_name(finding.file) not in ("", "-"):
            message = f"{finding.id} is in the detailed table, but not in the table of {finding.file}; add it there"
            yield finding.line, "row-missing", message


def _differences(in_file: FindingRow, detailed: FindingRow) -> Iterator[_Flaw]:
    where = f"in the table of {in_file.file} (line {in_file.line})"
    if in_file.severity != detailed.severity:
        message = f"{in_file.id} is {detailed.severity} in the detailed table, but {in_file.severity} {where}; keep one"
        yield detailed.line, "two-severities", message
    if line_ranges(in_file.lines) != line_ranges(detailed.lines):
        message = f"{in_file.id} is at lines {detailed.lines} in the detailed table, but at {in_file.lines} {where}"
        yield detailed.line, "row-differs", f"{message}; correct one"
    if base_name(in_file.file) not in detailed.file:
        message = f"{in_file.id} is in {detailed.file} according to the detailed table, but it is {where}; correct one"
        yield detailed.line, "row-differs", message


def _priorities(report: BatchReport) -> Iterator[_Flaw]:
    """Recommendations whose findings have none of the severities of their heading."""
    subjects_of = Subjects(report)
    for item in report.recommendations:
        subjects = subjects_of(item)
        if item.severities and subjects and not any(finding.severity in item.severities for finding in subjects):
            subjects.sort(key=lambda finding: (finding.severity, finding.id))
            about = row(f"{finding.id} ({finding.severity})" for finding in subjects)
            message = f"{_shorten(item.text)!r} is under {item.heading!r}, but is about {about}"
            yield item.line, "wrong-priority", f"{message}; move it to its priority"


def row_texts(report: BatchReport) -> dict[str, str]:
    """The text of each finding, from all tables of a report."""
    texts: dict[str, str] = {}
    for finding in (*report.findings, *report.per_file):
        texts[finding.id] = f"{texts.get(finding.id, '')}\n{finding.issue}".strip()
    return texts


class Subjects:
    """The findings that a recommendation is about, looked up by ID, code name, place and word."""

    def __init__(self, report: BatchReport) -> None:
        self._findings = report.findings
        self._texts = row_texts(report)
        self._by_id: _Index = defaultdict(list)
        self._by_name: _Index = defaultdict(list)       # by the last part of a code name
        self._by_file: _Index = defaultdict(list)
        self._by_word: _Index = defaultdict(list)
        for number, finding in enumerate(report.findings):
            text = self._texts[finding.id]
            self._by_id[finding.id].append(number)
            self._by_file[base_name(finding.file)].append(number)
            for name in {_last_part(name) for name in code_names(text)}:
                self._by_name[name].append(number)
            for word in words_of(text):
                self._by_word[word].append(number)

    def __call__(self, item: Recommendation) -> list[FindingRow]:
        """Those it names by ID, otherwise those with its code names or lines.

        The latter are extended by the findings that share its words. Words alone never make a match: the more findings
        an item may be about, the less often its priority is called wrong.
        """
        if item.ids:
            return [self._findings[number] for each in item.ids for number in self._by_id.get(each, ())]
        names = code_names(item.text)
        matches = {number for name in names for number in self._named(name)}
        for file, lines in places_in(item.text):
            matches.update(self._at(file, lines))
        for name in names if matches else ():
            words = words_of(name)
            if len(words) > 1:
                matches |= set.intersection(*(set(self._by_word.get(word, ())) for word in words))
        return [self._findings[number] for number in sorted(matches)]

    def _named(self, name: str) -> Iterator[int]:
        for number in self._by_name.get(_last_part(name), ()):
            if any(same_name(name, other) for other in code_names(self._texts[self._findings[number].id])):
                yield number

    def _at(self, file: str, lines: str) -> Iterator[int]:
        for number in self._by_file.get(file, ()):
            if overlap(line_ranges(lines), line_ranges(self._findings[number].lines)):
                yield number


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTE else text[: _MAX_QUOTE - 3] + "..."
