"""One change of a size at the user's call recompiles many frames of a library below it: that is one finding, not thirty."""

from collections import defaultdict
from dataclasses import replace

from torchtriage.findings.model import Cost, Finding, OwnerKind

SIZE_CODES = frozenset({"TT201", "TT202", "TT203", "TT221"})


def without_ripples(findings: list[Finding]) -> list[Finding]:
    """The findings, with size recompiles of library frames below one line of the user's folded into the first of them."""
    groups, kept = _grouped(findings)
    return kept + [_folded(group) for group in groups]


def told_under(findings: list[Finding]) -> dict[str, str]:
    """For the fingerprint of each folded finding the one that it is told under."""
    return {f.fingerprint: group[0].fingerprint for group in _grouped(findings)[0] for f in group}


def _grouped(findings: list[Finding]) -> tuple[list[list[Finding]], list[Finding]]:
    """The findings that fold, in groups, and those that do not."""
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    kept: list[Finding] = []
    for finding in findings:
        below_a_call = finding.owner.kind in (OwnerKind.LIBRARY, OwnerKind.TORCH) and finding.raised_at is not None
        if finding.code in SIZE_CODES and below_a_call:
            groups[finding.code, str(finding.location)].append(finding)
        else:
            kept.append(finding)
    return list(groups.values()), kept


def _folded(group: list[Finding]) -> Finding:
    """Events come in the order of the calls, so the first frame is the outermost."""
    first, *below = group
    if not below:
        return first
    timed = [f.cost.seconds for f in group if f.cost.seconds is not None]
    evidence = replace(
        first.evidence,
        num_events=sum(f.evidence.num_events for f in group),
        compile_ids=tuple(compile_id for f in group for compile_id in f.evidence.compile_ids),
        folded=(*first.evidence.folded, *(_line(f) for f in below)),
    )
    note = f"compile time of {len(group)} frames"
    return first.with_(
        title=f"{first.title}, and with it {len(below)} more frame{'s' if len(below) > 1 else ''} below",
        severity=min(f.severity for f in group), evidence=evidence,
        cost=Cost(seconds=sum(timed), kind=first.cost.kind, note=note) if timed else first.cost,
    )


def _line(finding: Finding) -> str:
    name = finding.raised_at.function if finding.raised_at else finding.location.function
    times = f"{finding.evidence.num_events} recompile{'s' if finding.evidence.num_events > 1 else ''}"
    seconds = f", {finding.cost.seconds:.1f} s" if finding.cost.seconds is not None else ""
    return f"{name}: {times}{seconds}"
