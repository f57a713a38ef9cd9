"""The shape study that a recording holds, and what it says of the findings whose remedy it decides."""

import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from torchtriage.findings.model import Finding
from torchtriage.findings.report import SHAPES
from torchtriage.findings.shape_study import AS_WRITTEN, DECIDED_BY_SHAPES, ShapeStudy
from torchtriage.recording.recording import Recording

LARGEST = 2**63     # JSON holds any number of digits; no count of ours has more


def study_of(recording: Recording) -> tuple[ShapeStudy | None, list[str]]:
    """(the study if there is one, what could not be seen of it)."""
    if problem := recording.facts.get("shapes_problem"):
        return None, [f"shape study: {problem}"]
    data = recording.facts.get("shapes")
    if data is None:
        return None, []
    try:
        study = ShapeStudy.from_dict(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return None, [f"shape study: {error if isinstance(error, ValueError) else 'its file is damaged; measure again'}"]
    if not fits(study, ShapeStudy):
        return None, ["shape study: its file is damaged; measure again"]
    return study, []


def fits(value: object, hint: Any) -> bool:
    """Whether a value read from JSON is of the type that the field declares, all the way down."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, arg) for arg in args)
    if hint is float:
        return isinstance(value, float) or fits(value, int)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    if origin is Sequence:
        return isinstance(value, (list, tuple)) and all(fits(item, args[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items())
    if not isinstance(value, hint):
        return False
    hints = typing.get_type_hints(hint) if is_dataclass(hint) else {}
    return all(fits(getattr(value, name), of) for name, of in hints.items())


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
    if policy == AS_WRITTEN:
        others = sum(p.name != AS_WRITTEN and not p.failed for p in study.policies)
        best = f"as written is as quick as any other of {others + 1} shape policies"
        return best if others else "no other shape policy could be measured"
    function = finding.location.function
    own = [best for name, best in study.by_function.items() if function and function in re.findall(r"[\w.]+", name)]
    return f"{policy}{_gain(study)}" + (f", {own[0]} for {function}" if own and own[0] != policy else "")


def _gain(study: ShapeStudy) -> str:
    """` 3.1x faster than as written over 10,000 steps (estimated)`; empty where one of them has no total."""
    totals = {p.name: p.total_seconds.middle for p in study.policies if p.total_seconds and not p.failed}
    written, advised = totals.get(AS_WRITTEN), totals.get(study.advice.policy)
    if not written or not advised or not math.isfinite(written / advised):
        return " is the quickest"
    kind = "estimated" if study.num_planned > study.num_units else "observed"
    ratio = written / advised
    times = f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
    return f" {times}x faster than as written over {study.num_planned:,} {study.unit}s ({kind})"
