"""Read a batch report: the content of each section, with the line of every row.

A missing section is empty, and nothing raises.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchtriage.tickets.checks.matching import ids_in
from torchtriage.tickets.markdown.lines import COMMENT, TEXT, TextLine, scan
from torchtriage.tickets.markdown.lists import items, key_of, label_of
from torchtriage.tickets.markdown.passages import is_rule
from torchtriage.tickets.markdown.sections import ReportSection, report_sections
from torchtriage.tickets.markdown.tables import TableRecord, plain_value, records

_NUMBER = re.compile(r"^\d+[.)]\s*")
_RANGE = re.compile(r"P(\d)\s*(?:[-–]|to)\s*P?(\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """A row of the detailed findings table or of a file's own table."""

    id: str
    file: str
    lines: str
    severity: str
    issue: str
    line: int
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnalysis:
    """The section about one file."""

    file: str
    line: int
    purpose: str
    findings: tuple[FindingRow, ...]
    strengths: str
    code_quality: str
    prose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeverityRow:
    """A row of the severity summary; `count` is None if the cell is not a number."""

    severity: str
    count: int | None
    key_issues: str
    ids: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A cross-cutting risk."""

    risk: str
    severity: str
    details: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """`severities` are those that its heading names, if any; `code` is the fenced code that follows it."""

    text: str
    code: str
    heading: str
    severities: frozenset[str]
    ids: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The content of a batch report; `other` are the sections that are not part of the format."""

    title: str = ""
    focus: str = ""
    files: tuple[str, ...] = ()
    summary: str = ""
    analyses: tuple[FileAnalysis, ...] = ()
    risks: tuple[Risk, ...] = ()
    missing_tests: tuple[TableRecord, ...] = ()
    memory: str = ""
    severity_line: int | None = None
    severity_rows: tuple[SeverityRow, ...] = ()
    findings: tuple[FindingRow, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    versions: tuple[TableRecord, ...] = ()
    conclusion: str = ""
    other: tuple[ReportSection, ...] = ()

    @property
    def per_file(self) -> tuple[FindingRow, ...]:
        return tuple(row for analysis in self.analyses for row in analysis.findings)

    @property
    def is_batch_report(self) -> bool:
        """Whether a text is a batch report at all: it lists findings or counts severities."""
        return bool(self.findings or self.severity_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """A batch report and the text it was read from."""

    path: Path
    text: str
    report: BatchReport


def parse_batch_file(text: str, path: Path) -> BatchFile:
    return BatchFile(path=path, text=text, report=parse_batch(text))


def parse_batch(text: str) -> BatchReport:
    """The report in a text; sections may be missing, in any order, or one level deeper than usual."""
    values: dict[str, object] = {}
    other: list[ReportSection] = []
    for section in _all_sections(text):
        if section.level == 1 and "title" not in values:
            values |= _head(section)
            continue
        reader = _reader_of(section)
        if reader is None:
            other.append(section)
            continue
        for name, value in reader(section).items():
            values.setdefault(name, value)
    # Every reader names fields of BatchReport.
    return BatchReport(**values, other=tuple(other))  # type: ignore[arg-type]


def _all_sections(text: str) -> Iterator[ReportSection]:
    """Every section; missing tests and memory, which are below the cross-cutting risks, are separate sections."""
    for section in report_sections(scan(text)[0], level=2):
        yield section
        if re.search("cross.cutting", section.title, re.IGNORECASE):
            for part in report_sections(section.lines, level=3):
                if re.search(_TESTS_OR_MEMORY, part.title, re.IGNORECASE):
                    yield part


def _head(section: ReportSection) -> dict[str, object]:
    labels = _prose_by_label(section.lines)
    files = next((text for label, text in labels.items() if label.startswith("files")), "")
    focus = next((text for label, text in labels.items() if "focus" in label), "")
    paths = tuple(plain_value(text) for _, text in items(scan(files)[0]))
    return {"title": section.title, "focus": focus, "files": paths}


def _analyses(section: ReportSection) -> dict[str, object]:
    parts = report_sections(section.lines, level=3)
    return {"analyses": tuple(_analysis(part) for part in parts if part.title)}


def _analysis(part: ReportSection) -> FileAnalysis:
    file = plain_value(_NUMBER.sub("", part.title))
    prose = _prose_by_label(part.lines)
    purpose, strengths, quality = (prose.pop(name, "") for name in ("purpose", "strengths", "code quality"))
    return FileAnalysis(
        file=file, line=part.line, findings=tuple(_finding_rows(part, file)), purpose=purpose, strengths=strengths,
        code_quality=quality, prose="\n\n".join(text for text in prose.values() if text),
    )


def _prose_by_label(lines: Sequence[TextLine]) -> dict[str, str]:
    """Prose by the bold label before it (`**Purpose:** ...`), in lower case; without tables, rules and markers."""
    texts: dict[str, list[str]] = {"": []}
    label = ""
    for line in lines:
        match = label_of(line)
        if match:
            label = key_of(match[1])
            texts.setdefault(label, []).append(line.text[match.end():])
        elif _is_prose(line):
            texts[label].append(line.text)
    return {name: "\n".join(parts).strip() for name, parts in texts.items()}


def _is_prose(line: TextLine) -> bool:
    return line.kind != COMMENT and not is_rule(line) and not line.text.lstrip().startswith("|")


def _finding_rows(section: ReportSection, file: str = "") -> Iterator[FindingRow]:
    for row in records(section.lines):
        if row.cell("id"):
            yield FindingRow(
                id=plain_value(row.cell("id")), file=plain_value(row.cell("file", "file(s)")) or file,
                lines=plain_value(row.cell("line", "lines", "line(s)", "location")),
                severity=plain_value(row.cell("severity")), issue=row.cell("issue", "summary", "finding"),
                line=row.line, rule=plain_value(row.cell("rule")),
            )


def _risks(section: ReportSection) -> dict[str, object]:
    risks = [
        Risk(
            risk=row.cell("risk"), severity=plain_value(row.cell("severity")), details=row.cell("details", "issue"),
            line=row.line,
        )
        for row in records(section.lines) if "risk" in row.cells
    ]
    return {"risks": tuple(risks)}


def _severity_rows(section: ReportSection) -> dict[str, object]:
    rows = []
    for row in records(section.lines):
        count, issues = plain_value(row.cell("count")), row.cell("key issues", "issues")
        rows.append(SeverityRow(
            severity=plain_value(row.cell("severity")), count=int(count) if re.fullmatch(r"\d{1,6}", count) else None,
            key_issues=issues, ids=_ids_listed(issues), line=row.line,
        ))
    return {"severity_rows": tuple(rows), "severity_line": section.line}


def _ids_listed(issues: str) -> tuple[str, ...]:
    """The IDs that `ID: text; ID/ID: text` lists, without those that its texts mention."""
    return ids_in(" ".join(part.split(":")[0] for part in issues.split(";")))


def _recommendations(section: ReportSection) -> dict[str, object]:
    recommendations = []
    for part in report_sections(section.lines, level=3):
        for line, text in items(part.lines):
            recommendations.append(Recommendation(
                text=text, code=_code_after(part.lines, line), heading=part.title,
                severities=severities_in(part.title), ids=ids_in(text),
                line=line.number,
            ))
    return {"recommendations": tuple(recommendations)}


def _code_after(lines: Sequence[TextLine], item: TextLine) -> str:
    """The fenced code directly below a list item."""
    position = next(at for at, line in enumerate(lines) if line.number == item.number) + 1
    while position < len(lines) and (lines[position].is_blank or lines[position].text[:2].isspace()):
        position += 1
    end = position
    while end < len(lines) and lines[end].kind not in (TEXT, COMMENT):
        end += 1
    return "\n".join(line.text for line in lines[position:end])


def severities_in(heading: str) -> frozenset[str]:
    """The severities that a heading names: `High Priority (P1-P2)` names P1 and P2."""
    span = _RANGE.search(heading)
    if span:
        low, high = sorted((int(span[1]), int(span[2])))
        return frozenset(f"P{number}" for number in range(low, high + 1))
    return frozenset(re.findall(r"\bP\d\b", heading))


def _prose(section: ReportSection) -> str:
    return "\n".join(line.text for line in section.lines if line.kind != COMMENT and not is_rule(line)).strip()


def _reader_of(section: ReportSection) -> "_Reader | None":
    return next((read for pattern, read in _READERS if re.search(pattern, section.title, re.IGNORECASE)), None)


_Reader = Callable[[ReportSection], Mapping[str, object]]
_TESTS_OR_MEMORY = r"missing.*test|test.*coverage|memory"
_READERS: tuple[tuple[str, _Reader], ...] = (
    (r"executive summary", lambda section: {"summary": _prose(section)}),
    (r"(file.by|per).file", _analyses),
    (r"cross.cutting", _risks),
    (r"missing.*test|test.*coverage", lambda section: {"missing_tests": tuple(records(section.lines))}),
    (r"memory", lambda section: {"memory": _prose(section)}),
    (r"severity summary", _severity_rows),
    (r"detailed findings|findings table", lambda section: {"findings": tuple(_finding_rows(section))}),
    (r"recommendation", _recommendations),
    (r"version.*(matrix|compat)|compatibility matrix", lambda section: {"versions": tuple(records(section.lines))}),
    (r"conclusion", lambda section: {"conclusion": _prose(section)}),
)
