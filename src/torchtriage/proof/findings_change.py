"""How the findings of two runs differ: fixed, unchanged, new."""

from collections.abc import Sequence
from dataclasses import replace

from torchtriage.findings.fingerprint import normalised_line, normalised_reason
from torchtriage.findings.model import Finding
from torchtriage.findings.proof.verdict import FindingMark, FindingsChange
from torchtriage.text import short_place

Findings = Sequence[Finding]


def findings_change(before: Sequence[Findings], after: Sequence[Findings]) -> FindingsChange:
    """From the findings of each run of both sides.

    A finding is fixed if every run of BEFORE has it and no run of AFTER, and new the other way round: one that comes
    and goes by itself is neither.
    """
    first, other = before[0], after[0]
    fixed = [f for f in first if _is_only_in(before, after, f)]
    new = [f for f in other if _is_only_in(after, before, f)]
    unchanged = [f for f in first if any(_has(run, f) for run in after)]
    return FindingsChange(
        fixed=[mark(f) for f in fixed], new=[mark(f) for f in new],
        unchanged=[replace(mark(f), num_events_after=_num_events(f, after)) for f in unchanged])


def _num_events(finding: Finding, runs: Sequence[Findings]) -> int:
    """Of a finding in the run in which it happened least."""
    return min(sum(f.evidence.num_events for f in run if _is_same(f, finding)) for run in runs)


def _is_only_in(runs: Sequence[Findings], others: Sequence[Findings], finding: Finding) -> bool:
    return all(_has(run, finding) for run in runs) and not any(_has(run, finding) for run in others)


def _has(run: Findings, finding: Finding) -> bool:
    return any(_is_same(f, finding) for f in run)


def _is_same(a: Finding, b: Finding) -> bool:
    return a.fingerprint == b.fingerprint or _key(a) == _key(b)


def _key(finding: Finding) -> tuple[str, ...]:
    """What stays the same where only the name of the file differs."""
    source = next((line.text for line in finding.evidence.source if line.is_place), "")
    if not source:
        return (finding.fingerprint,)
    place = finding.location
    return finding.code, place.function or "", normalised_line(source), normalised_reason(finding.title)


def mark(finding: Finding) -> FindingMark:
    return FindingMark(
        code=finding.code, severity=finding.severity, title=finding.title, fingerprint=finding.fingerprint,
        place=short_place(finding.location.path, finding.location.line), num_events=finding.evidence.num_events,
    )
