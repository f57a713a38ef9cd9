"""Links findings about sizes to the shape study in the same recording."""

import math
import re
from dataclasses import replace

from torchtriage.findings.model import Finding
from torchtriage.findings.report import SHAPES
from torchtriage.findings.shape_study import BASELINE, DECIDED_BY_SHAPES, ShapeStudy, policy_label
from torchtriage.findings.tap_state import SHAPE_STUDY, TapState, TapStatus
from torchtriage.recording.recording import Recording
from torchtriage.text import counted, factor


def study_of(recording: Recording) -> tuple[ShapeStudy | None, list[TapState]]:
    """(the study if there is one, the problem if it cannot be read)."""
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
    """Add the result of the study to the findings about sizes, with a reference to it."""
    if study is None:
        return findings
    return [_linked(f, study) if f.code in DECIDED_BY_SHAPES else f for f in findings]


def _linked(finding: Finding, study: ShapeStudy) -> Finding:
    notes = (*finding.evidence.notes, f"measured: {_measured(finding, study)}; see shapes")
    return finding.with_(evidence=replace(finding.evidence, notes=notes), related=(*finding.related, SHAPES))


def _measured(finding: Finding, study: ShapeStudy) -> str:
    """The result of the study, with the policy of the finding's own function where that one differs."""
    policy = study.advice.policy
    if not policy:
        return "no shape policy is clearly the fastest"
    if policy == BASELINE:
        others = sum(p.name != BASELINE and not p.failed for p in study.policies)
        if not others:
            return "no other shape policy could be measured"
        policies = counted(others, "other shape policy", "other shape policies")
        return f"{policies}, none faster than the unmodified program"
    function = finding.location.function
    best = next((best for name, best in study.by_function.items() if function in re.findall(r"[\w.]+", name)), policy)
    return f"{policy}{_gain(study)}" + (f", {policy_label(best)} for {function}" if best != policy else "")


def _gain(study: ShapeStudy) -> str:
    """` is 3.1x faster than the unmodified program over 10,000 steps (estimated)`."""
    totals = {p.name: p.total_seconds.middle for p in study.policies if p.total_seconds and not p.failed}
    baseline, advised = totals.get(BASELINE), totals.get(study.advice.policy)
    if not baseline or not advised or not math.isfinite(baseline / advised):
        return " is the fastest"
    kind = "estimated" if study.num_planned > study.num_units else "observed"
    units = counted(study.num_planned, study.unit)
    return f" is {factor(baseline / advised)} faster than the unmodified program over {units} ({kind})"
