"""Joins findings of the source with those of runs: a hazard that both show is one finding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchtriage.findings.model import Finding
from torchtriage.lint.run_evidence import with_run
from torchtriage.recording.events import CompileStart
from torchtriage.recording.recording import Recording
from torchtriage.text import original_function

_SEEN_BY_RUNS = ("TT1", "TT2", "TT3")      # what torch.compile did; a run shows no TT7 of the source


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFinding:
    """A finding of the source, and the one of a run about the same hazard with the evidence of both."""

    source: Finding
    run: Finding


def join(
    findings: Sequence[Finding], observed: Sequence[Finding], recording: Recording, name: str,
) -> tuple[list[SeenFinding], list[Finding]]:
    """(what the source and the run both show, the other findings of the source with a note about this run)."""
    compiled = {(event.path, original_function(event.function)) for event in recording.of(CompileStart)}
    marks = {finding.fingerprint for finding in observed}
    seen: list[SeenFinding] = []
    unseen: list[Finding] = []
    for finding in findings:
        joined = with_run([finding], observed, compiled)[0]
        if joined.fingerprint in marks:
            seen.append(SeenFinding(source=finding, run=joined))
        else:
            function = (finding.location.function or "").rpartition(".")[2]
            was_compiled = (finding.location.path, function) in compiled
            unseen.append(_noted(finding, name, was_compiled=was_compiled))
    return seen, unseen


def _noted(finding: Finding, name: str, *, was_compiled: bool) -> Finding:
    if not finding.code.startswith(_SEEN_BY_RUNS):
        return finding
    note = f"not seen in {name}" + (", although the function was compiled" if was_compiled else "")
    return finding.with_(evidence=replace(finding.evidence, notes=(*finding.evidence.notes, note)))
