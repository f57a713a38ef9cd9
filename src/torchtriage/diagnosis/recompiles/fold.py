"""Fold the recompiles of library frames below one call of the user into one finding.

One change of a size at that call recompiles many frames, and there is one thing to change.
"""

from collections import defaultdict
from dataclasses import replace

from torchtriage.findings.model import Cost, Finding, OwnerKind
from torchtriage.text import counted, duration

SIZE_CODES = frozenset({"TT201", "TT202", "TT203", "TT221"})


def fold_library_frames(findings: list[Finding]) -> list[Finding]:
    """The findings; size recompiles of library frames below one line of the user become the first of them."""
    groups, others = _grouped(findings)
    return others + [_folded(group) for group in groups]


def folded_into(findings: list[Finding]) -> dict[str, str]:
    """The fingerprint of each finding that may fold, with the fingerprint of the one that is reported for it."""
    groups, _ = _grouped(findings)
    return {finding.fingerprint: group[0].fingerprint for group in groups for finding in group}


def _grouped(findings: list[Finding]) -> tuple[list[list[Finding]], list[Finding]]:
    """The findings that fold, in groups, and those that do not."""
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    others: list[Finding] = []
    for finding in findings:
        is_library = finding.owner.kind in (OwnerKind.LIBRARY, OwnerKind.TORCH)
        if finding.code in SIZE_CODES and is_library and finding.raised_at is not None:
            groups[finding.code, str(finding.location)].append(finding)
        else:
            others.append(finding)
    return list(groups.values()), others


def _folded(group: list[Finding]) -> Finding:
    """Events come in the order of the calls, so the first frame is the outermost."""
    first, *below = group
    if not below:
        return first
    timed = [finding.cost.seconds for finding in group if finding.cost.seconds is not None]
    evidence = replace(
        first.evidence,
        num_events=sum(finding.evidence.num_events for finding in group),
        compile_ids=tuple(compile_id for finding in group for compile_id in finding.evidence.compile_ids),
        folded=(*first.evidence.folded, *(_line(finding) for finding in below)),
    )
    note = f"compile time of {len(group)} frames"
    return first.with_(
        title=f"{first.title} (and {counted(len(below), 'frame')} below it)",
        severity=min(finding.severity for finding in group), evidence=evidence,
        cost=Cost(seconds=sum(timed), kind=first.cost.kind, note=note) if timed else first.cost,
    )


def _line(finding: Finding) -> str:
    name = finding.raised_at.function if finding.raised_at else finding.location.function
    seconds = "" if finding.cost.seconds is None else f", {duration(finding.cost.seconds)}"
    return f"{name}: {counted(finding.evidence.num_events, 'recompile')}{seconds}"
