"""Joins findings of the source with those of a recorded run: one problem, two kinds of evidence."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from torchtriage.findings.model import Finding

# A break may have another code in the run than in the source: a block around it, or fullgraph=True.
_BREAKS = ("TT1", "TT308")


def with_run(
    findings: Sequence[Finding], observed: Sequence[Finding], compiled: Collection[tuple[str, str]],
) -> list[Finding]:
    """Each finding says whether the run saw it, and with which cost; `compiled` are the path and name of each frame."""
    joined = []
    for finding in findings:
        seen = next((other for other in observed if _is_same(finding, other)), None)
        joined.append(_unseen(finding, compiled) if seen is None else _seen(finding, seen))
    return sorted(joined, key=lambda f: (f.severity, f.location.path, f.location.line or 0, f.code))


def _seen(finding: Finding, run: Finding) -> Finding:
    """The finding of the run, which measured it, with the path that the source shows."""
    return run.with_(
        cause=f"{run.cause}; seen in this run and in the source: {finding.cause}",
        evidence=replace(run.evidence, source=finding.evidence.source),
        location=finding.location if run.code == finding.code and run.code >= "TT2" else run.location,
    )


def _unseen(finding: Finding, compiled: Collection[tuple[str, str]]) -> Finding:
    function = (finding.location.function or "").rpartition(".")[2]
    if (finding.location.path, function) in compiled:
        state = "not seen in this run, although the function was compiled"
    else:
        state = "not seen in this run"
    return finding.with_(cause=f"{finding.cause}; {state}")


def _is_same(finding: Finding, run: Finding) -> bool:
    """By fingerprint; else by place: a break by its line, a recompile by its code and the compiled function."""
    if finding.fingerprint == run.fingerprint:
        return True
    lines = [(place.path, place.line) for place in (run.location, run.raised_at) if place is not None]
    if (finding.location.path, finding.location.line) in lines:
        both_break = finding.code.startswith(_BREAKS) and run.code.startswith(_BREAKS)
        return both_break or finding.code == run.code
    return finding.code == run.code and _is_same_frame(finding, run)


def _is_same_frame(finding: Finding, run: Finding) -> bool:
    frame = finding.raised_at or finding.location
    own = (frame.path, (frame.function or "").rpartition(".")[2])
    return finding.code >= "TT2" and own == (run.location.path, (run.location.function or "").rpartition(".")[2])
