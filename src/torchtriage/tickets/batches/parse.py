"""Read a batch report: what it says in each section, with the line of every row; what is missing is empty, nothing raises."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torchtriage.tickets.checks.matching import ids_in
from torchtriage.tickets.files.reading import items, key_of, label_of
from torchtriage.tickets.markdown.batch_markdown import Row, Section, sections, tables
from torchtriage.tickets.markdown.lines import COMMENT, Line, scan
from torchtriage.tickets.markdown.passages import is_rule
from torchtriage.tickets.markdown.tables import undressed

_NUMBER = re.compile(r"^\d+[.)]\s*")
_RANGE = re.compile(r"P(\d)\s*(?:[-–]|to)\s*P?(\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """A row of the detailed table or of a file's own table."""

    id: str
    file: str
    lines: str
    severity: str
    issue: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnalysis:
    file: str
    line: int
    purpose: str
    findings: tuple[FindingRow, ...]
    strengths: str
    code_quality: str
    prose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeverityRow:
    """`count` is None where no number stands."""

    severity: str
    count: int | None
    key_issues: str
    ids: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    risk: str
    severity: str
    details: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """`severities` are those that its heading names; none if it names none."""

    text: str
    heading: str
    severities: frozenset[str]
    ids: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    title: str = ""
    focus: str = ""
    files: tuple[str, ...] = ()
    summary: str = ""
    analyses: tuple[FileAnalysis, ...] = ()
    risks: tuple[Risk, ...] = ()
    missing_tests: tuple[Row, ...] = ()
    memory: str = ""
    severity_line: int | None = None
    severity_rows: tuple[SeverityRow, ...] = ()
    findings: tuple[FindingRow, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    versions: tuple[Row, ...] = ()
    conclusion: str = ""
    other: tuple[Section, ...] = ()

    @property
    def per_file(self) -> tuple[FindingRow, ...]:
        return tuple(row for analysis in self.analyses for row in analysis.findings)


def parse_batch(text: str) -> BatchReport:
    """The report in `text`; sections may be missing, in any order, or one level deeper than usual."""
    values: dict[str, object] = {"other": ()}
    for section in _all_sections(text):
        reader = next((read for pattern, read in _READERS if re.search(pattern, section.title, re.IGNORECASE)), None)
        if section.level == 1 and "title" not in values:
            values |= _head(section)
        elif reader:
            for name, value in reader(section).items():
                values.setdefault(name, value)
        else:
            values["other"] = (*values["other"], section)  # type: ignore[misc]  # it is the tuple that was put there above
    return BatchReport(**values)  # type: ignore[arg-type]  # every reader names fields of BatchReport


def _all_sections(text: str) -> Iterator[Section]:
    """Missing tests and memory stand below the cross-cutting risks; they are handed out as sections of their own."""
    for section in sections(scan(text)[0], level=2):
        yield section
        if re.search("cross.cutting", section.title, re.IGNORECASE):
            yield from (part for part in sections(section.lines, level=3) if re.search(_TESTS_OR_MEMORY, part.title, re.IGNORECASE))


def _head(section: Section) -> dict[str, object]:
    labels = _labelled(section.lines)
    files = next((text for label, text in labels.items() if label.startswith("files")), "")
    focus = next((text for label, text in labels.items() if "focus" in label), "")
    return {"title": section.title, "focus": focus, "files": tuple(undressed(text) for _, text in items(scan(files)[0]))}


def _analyses(section: Section) -> dict[str, object]:
    return {"analyses": tuple(_analysis(part) for part in sections(section.lines, level=3) if part.title)}


def _analysis(part: Section) -> FileAnalysis:
    file = undressed(_NUMBER.sub("", part.title))
    labels = _labelled(part.lines)
    known = {name: labels.pop(name, "") for name in ("purpose", "strengths", "code quality")}
    return FileAnalysis(
        file=file, line=part.line, findings=tuple(_finding_rows(part, file)), purpose=known["purpose"],
        strengths=known["strengths"], code_quality=known["code quality"], prose="\n\n".join(text for text in labels.values() if text),
    )


def _labelled(lines: Sequence[Line]) -> dict[str, str]:
    """Prose by the bold label before it (`**Purpose:** ...`), in small letters; tables, rules and markers are left out."""
    found: dict[str, list[str]] = {"": []}
    label = ""
    for line in lines:
        match = label_of(line)
        if match:
            label = key_of(match[1])
            found.setdefault(label, []).append(line.text[match.end():])
        elif _is_prose(line):
            found[label].append(line.text)
    return {name: "\n".join(texts).strip() for name, texts in found.items()}


def _is_prose(line: Line) -> bool:
    return line.kind != COMMENT and not is_rule(line) and not line.text.lstrip().startswith("|")


def _finding_rows(section: Section, file: str = "") -> Iterator[FindingRow]:
    for row in _rows(section):
        if row.cell("id"):
            yield FindingRow(
                id=undressed(row.cell("id")), file=undressed(row.cell("file", "file(s)")) or file,
                lines=undressed(row.cell("line", "lines", "line(s)", "location")),
                severity=undressed(row.cell("severity")), issue=row.cell("issue", "summary", "finding"), line=row.line,
            )


def _rows(section: Section) -> Iterator[Row]:
    for table in tables(section.lines):
        yield from table


def _risks(section: Section) -> dict[str, object]:
    return {"risks": tuple(
        Risk(risk=row.cell("risk"), severity=undressed(row.cell("severity")), details=row.cell("details", "issue"), line=row.line)
        for row in _rows(section) if "risk" in row.cells
    )}


def _severity_rows(section: Section) -> dict[str, object]:
    found = []
    for row in _rows(section):
        count, issues = undressed(row.cell("count")), row.cell("key issues", "issues")
        found.append(SeverityRow(
            severity=undressed(row.cell("severity")), count=int(count) if re.fullmatch(r"\d{1,6}", count) else None, key_issues=issues,
            ids=_ids_listed(issues), line=row.line,
        ))
    return {"severity_rows": tuple(found), "severity_line": section.line}


def _ids_listed(issues: str) -> tuple[str, ...]:
    """The IDs that `ID: text; ID/ID: text` lists, not those that its texts mention."""
    return ids_in(" ".join(part.split(":")[0] for part in issues.split(";")))


def _recommendations(section: Section) -> dict[str, object]:
    found = []
    for part in sections(section.lines, level=3):
        for line, text in items(part.lines):
            found.append(Recommendation(
                text=text, heading=part.title, severities=severities_in(part.title), ids=ids_in(text), line=line.number,
            ))
    return {"recommendations": tuple(found)}


def severities_in(heading: str) -> frozenset[str]:
    """`High Priority (P1-P2)` names P1 and P2."""
    span = _RANGE.search(heading)
    if span:
        low, high = sorted((int(span[1]), int(span[2])))
        return frozenset(f"P{number}" for number in range(low, high + 1))
    return frozenset(re.findall(r"\bP\d\b", heading))


def _prose(name: str) -> Callable[[Section], dict[str, object]]:
    return lambda section: {name: "\n".join(
        line.text for line in section.lines if line.kind != COMMENT and not is_rule(line)
    ).strip()}


_TESTS_OR_MEMORY = r"missing.*test|test.*coverage|memory"
_READERS: tuple[tuple[str, Callable[[Section], dict[str, object]]], ...] = (
    (r"executive summary", _prose("summary")),
    (r"(file.by|per).file", _analyses),
    (r"cross.cutting", _risks),
    (r"missing.*test|test.*coverage", lambda section: {"missing_tests": tuple(_rows(section))}),
    (r"memory", _prose("memory")),
    (r"severity summary", _severity_rows),
    (r"detailed findings|findings table", lambda section: {"findings": tuple(_finding_rows(section))}),
    (r"recommendation", _recommendations),
    (r"version.*(matrix|compat)|compatibility matrix", lambda section: {"versions": tuple(_rows(section))}),
    (r"conclusion", _prose("conclusion")),
)
