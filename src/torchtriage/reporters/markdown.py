"""Findings as one Markdown summary, for a pull request comment, a job summary or a wiki."""

import re
from collections.abc import Iterable, Iterator, Sequence

from torchtriage.findings.checks import sentence
from torchtriage.findings.model import UNKNOWN_PLACE, CostKind, Finding, Location, OwnerKind
from torchtriage.findings.proof.remedy import proof_sentence
from torchtriage.findings.report import Report
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.reporters import shape_text
from torchtriage.reporters.summary import (
    MAX_RANKS,
    by_severity,
    cost_text,
    measure_hint,
    not_seen,
    not_shown,
    nothing_found,
    short_path,
    source_text,
    totals_line,
    watched_line,
)
from torchtriage.text import counted, harmless_text, numbered, printable, shortened

MAX_BYTES = 65_000      # GitHub accepts comments of up to 65,536 characters
TABLE_BYTES = 25_000    # leaves room for the worst findings in full below a long table
STUDY_BYTES = 15_000
FOOT_BYTES = 10_000
MAX_TEXT = 1_500        # characters per field, so that one long text does not fill the comment
MAX_ITEMS = 10
MAX_LINES = 40
_MARKUP = frozenset("\\`*_[]|~#")
_BULLET = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+=]))")      # would begin a list, a rule or a heading
# GitHub renders text between two dollar signs as a formula.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "<span>$</span>"}
# GitHub would turn these into a mention, a reference, a link or an emoji; a zero-width space prevents that.
_ACTIVE = re.compile(r"@(?=\w)|#(?=\d)|\bGH-(?=\d)|:(?=//)|:(?=[\w+-]+:)|www(?=\.)", re.I)


def render(report: Report) -> str:
    """The verdict, the totals, a table of the findings, then as many of them in full as fit into a comment."""
    findings = report.findings
    head = f"{_verdict(report)}\n\n{prose(totals_line(report))}\n"
    if report.shapes is not None:
        head += _study(report.shapes)
    foot = _foot(report)
    rows = _fitting((_row(f, report) for f in findings), TABLE_BYTES)
    if rows:
        head += "\n| severity | code | finding | place | cost |\n|---|---|---|---|---|\n" + "".join(rows)
    left = findings[len(rows):]
    if left:
        head += f"\n{counted(len(left), 'finding')} more ({by_severity(left)}) are not in this table.\n"
    sections = _fitting((_section(f, report) for f in findings), MAX_BYTES - _size(head) - _size(foot))
    left = findings[len(sections):]
    if left:
        more = f"{counted(len(left), 'finding')} more ({by_severity(left)})"
        foot = f"\n{more}, in full with: `torchtriage report RECORDING -v`\n{foot}"
    return harmless_text(head + "".join(sections) + foot)


def prose(text: str) -> str:
    """Text of the observed program as plain words: without markup, mentions and links."""
    text = _ACTIVE.sub("\\g<0>\u200b", _short(" ".join(text.split())))
    escaped = "".join(_ENTITIES.get(c) or (f"\\{c}" if c in _MARKUP else c) for c in text)
    return _BULLET.sub(r"\1\\", escaped).replace("\u200b", "&#8203;")


def code(text: str) -> str:
    """Text as a code span, even if it contains backticks."""
    text = _short(text)
    padding = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{_fence(text)}{padding}{text}{padding}{_fence(text)}" if text else ""


def _short(text: str) -> str:
    return shortened(printable(text[: MAX_TEXT + 1]), MAX_TEXT)


def _fence(text: str, shortest: int = 1) -> str:
    """One backtick more than the longest run of backticks in the text."""
    return "`" * max(shortest, 1 + max(map(len, re.findall("`+", text)), default=0))


def _verdict(report: Report) -> str:
    if not report.findings:
        return f"**torchtriage: {nothing_found(report)}**"
    counts = f"{counted(len(report.findings), 'finding')} ({by_severity(report.findings)})"
    return f"**torchtriage: {counts}**. First {report.findings[0].code}: {prose(report.findings[0].title)}"


def _row(f: Finding, report: Report) -> str:
    path = "" if f.location == UNKNOWN_PLACE else short_path(str(f.location), report.run)
    place = prose(path) if {"|", "\\"} & set(path) else code(path)      # a bar in a code span would end the cell
    return f"| {f.severity.name} | {f.code} | {prose(f.title)} | {place} | {prose(_cost(f))} |\n"


def _section(f: Finding, report: Report) -> str:
    lines = [f"\n### {f.code} {f.severity.name}: {prose(f.title)}\n"]
    if f.location != UNKNOWN_PLACE:
        lines.append(f"**Where:** {_where(f, report)}\n")
    lines.append(f"**Why:** {prose(f.cause)}{f' ({prose(f.upstream)})' if f.upstream else ''}\n")
    if f.evidence.source:
        lines.append(_block([source_text(line) for line in f.evidence.source]))
    note = f"; {f.cost.note}" if f.cost.note and f.cost.note not in _cost(f) else ""
    lines.append(f"**Cost:** {prose(_cost(f) + note)}\n")
    lines.append(f"**Fix:** {prose(f.fix.text)}\n")
    if f.fix.edit:
        lines.append(_block(f.fix.edit.splitlines()))
    if f.proof is not None:
        lines.append(f"**Verified:** {prose(proof_sentence(f.proof))}\n")
    lines += _list("With it", "-", f.evidence.folded)
    lines += _list("Verify", "- [ ]", [sentence(check) for check in f.verification])
    lines.append(f"More: {code(f'torchtriage explain {f.code}')}\n")
    return "\n".join(lines)


def _cost(f: Finding) -> str:
    return cost_text(f.cost) or CostKind.NOT_MEASURED


def _where(f: Finding, report: Report) -> str:
    def place(at: Location) -> str:
        return code(short_path(str(at), report.run)) + (f" in {code(at.function)}" if at.function else "")

    parts = [place(f.location)]
    if f.raised_at is not None:
        parts.append(f"raised at {place(f.raised_at)}")
    if f.owner.kind not in (OwnerKind.YOU, OwnerKind.UNKNOWN):
        parts.append(f"owner: {prose(str(f.owner))}")
    if f.ranks:
        parts.append(numbered("rank", f.ranks, MAX_RANKS))
    return "; ".join(parts)


def _list(title: str, bullet: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        shown = [f"{bullet} {prose(item)}" for item in items[:MAX_ITEMS]]
        more = [f"- {len(items) - MAX_ITEMS} more"] if len(items) > MAX_ITEMS else []
        yield "\n".join([f"**{title}:**\n", *shown, *more, ""])


def _block(lines: Sequence[str]) -> str:
    """The lines as a code block, unchanged."""
    cut = ["..."] if len(lines) > MAX_LINES else []
    text = "\n".join([*(_short(line.expandtabs(4)) for line in lines[:MAX_LINES]), *cut])
    return f"{_fence(text, 3)}text\n{text}\n{_fence(text, 3)}\n"


def _study(study: ShapeStudy) -> str:
    """The advice, the table of the policies, and the measurements behind them."""
    rows = shape_text.rows(study)
    remarks = [
        *(f"{row.policy}: {remark}" for row in rows for remark in row.remarks),
        shape_text.how_measured(study),
        *(shape_text.crossover(study, c) for c in study.crossovers),
        *(f"best for {function}: {policy}" for function, policy in shape_text.functions(study)),
        *(shape_text.branch(study, branch) for branch in study.branches),
        *(f"{s.function}: {shape_text.size(s)}" for s in study.sizes),
        *(f"{policy} overrode {'; '.join(calls)}" for policy, calls in shape_text.overrides(study)),
        *study.notes,
        shape_text.spent(study),
    ]
    why = "; to settle it: ".join(filter(None, (shape_text.reason(study), shape_text.needs(study))))
    parts = [f"\n### Shapes: {prose(shape_text.verdict(study))}\n"]
    if why:
        parts.append(f"\n{prose(why)}\n")
    if study.advice.setting:
        parts.append(f"\n{_block(study.advice.setting)}")
    table = [
        (r.policy, r.compiles, r.compiling, r.first_call, r.steady, r.memory, r.total) for r in rows if not r.is_bare
    ]
    parts.append(_study_table(shape_text.headings(study), table))
    parts += [f"- {prose(line)}\n" for line in remarks if line]
    return "".join(_fitting(parts, STUDY_BYTES))


def _study_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "\n"
    lines = [headings, ("---",) + ("---:",) * 6]
    lines += [tuple(map(prose, cells)) for cells in rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _foot(report: Report) -> str:
    """The findings that were removed, the taps that watched or were missing, and the versions."""
    lines = not_shown(report)
    if not report.findings:
        lines.append(watched_line(report))
    lines += [f"not seen: {text}" for text in not_seen(report)]
    lines.append(measure_hint(report))
    versions = [f"{name} {report.run[name]}" for name in ("torchtriage", "torch", "python") if report.run.get(name)]
    items = [f"- {prose(line)}\n" for line in [*lines, ", ".join(versions)] if line]
    shown = _fitting(items, FOOT_BYTES)
    more = f"- {len(items) - len(shown)} more\n" if len(shown) < len(items) else ""
    return f"\n---\n{''.join(shown)}{more}" if items else ""


def _fitting(parts: Iterable[str], room: int) -> list[str]:
    """The first parts that fit."""
    first: list[str] = []
    for part in parts:
        room -= _size(part)
        if room < 0:
            break
        first.append(part)
    return first


def _size(text: str) -> int:
    return len(text.encode())
