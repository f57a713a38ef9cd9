"""The shape study that a recording holds, and what it says of the findings whose remedy it decides."""

import math
import re
from dataclasses import replace

from torchtriage.findings.model import Finding
from torchtriage.findings.report import SHAPES
from torchtriage.findings.shape_study import BASELINE, DECIDED_BY_SHAPES, ShapeStudy
from torchtriage.findings.tap_state import SHAPE_STUDY, TapState, TapStatus
from torchtriage.recording.recording import Recording


def study_of(recording: Recording) -> tuple[ShapeStudy | None, list[TapState]]:
    """(the study if there is one, what could not be seen of it)."""
    if problem := recording.folder.shapes_problem:
        return None, [_unread(problem)]
    data = recording.folder.shapes
    if data is None:
        return None, []
    try:
        study = ShapeStudy.from_dict(data)
    except ValueError as error:
        return None, [_unread(str(error))]
    return study, []


def _unread(problem: str) -> TapState:
    return TapState(name=SHAPE_STUDY, status=TapStatus.ABSENT, detail=problem)


def linked_to_study(findings: list[Finding], study: ShapeStudy | None) -> list[Finding]:
    """Findings about sizes say what was measured, and lead to the study."""
    if study is None:
        return findings
    return [_linked(f, study) if f.code in DECIDED_BY_SHAPES else f for f in findings]


def _linked(finding: Finding, study: ShapeStudy) -> Finding:
    notes = (*finding.evidence.notes, f"measured: {_measured(finding, study)}; see shapes")
    return finding.with_(evidence=replace(finding.evidence, notes=notes), related=(*finding.related, SHAPES))


def _measured(finding: Finding, study: ShapeStudy) -> str:
    """What the study says, for the finding's own function where it tells functions apart."""
    policy = study.advice.policy
    if not policy:
        return "no shape policy is clearly the quickest"
    if policy == BASELINE:
        others = sum(p.name != BASELINE and not p.failed for p in study.policies)
        best = f"as written is as quick as any other of {others + 1} shape policies"
        return best if others else "no other shape policy could be measured"
    function = finding.location.function
    own = [best for name, best in study.by_function.items() if function and function in re.findall(r"[\w.]+", name)]
    return f"{policy}{_gain(study)}" + (f", {own[0]} for {function}" if own and own[0] != policy else "")


def _gain(study: ShapeStudy) -> str:
    """` 3.1x faster than as written over 10,000 steps (estimated)`; empty where one of them has no total."""
    totals = {p.name: p.total_seconds.middle for p in study.policies if p.total_seconds and not p.failed}
    written, advised = totals.get(BASELINE), totals.get(study.advice.policy)
    if not written or not advised or not math.isfinite(written / advised):
        return " is the quickest"
    kind = "estimated" if study.num_planned > study.num_units else "observed"
    ratio = written / advised
    times = f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
    return f" {times}x faster than as written over {study.num_planned:,} {study.unit}s ({kind})"
