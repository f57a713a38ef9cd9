"""Findings as JSON, schema 1."""

import dataclasses
import json
import math
from typing import Any

from torchtriage.findings.checks import sentence
from torchtriage.findings.model import Check, Finding, Location, SampledValue, SourceLine
from torchtriage.findings.report import TOTALS, Report
from torchtriage.reporters.shape_text import with_sentences
from torchtriage.reporters.summary import source_text, tap_text

SCHEMA = 1


def render(report: Report) -> str:
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "run": report.run,
        "watched": [tap_text(tap) for tap in report.watched],
        "not_seen": [tap_text(tap) for tap in report.not_seen],
        "totals": {name: report.totals.get(name) for name in TOTALS},
        "num_known": report.num_known,
        "num_hidden": report.num_hidden,
        "num_suppressed": report.num_suppressed,
        "unused_suppressions": list(report.unused_suppressions),
        "findings": [finding_as_dict(f) for f in report.findings],
    }
    if report.shapes is not None:
        data["shapes"] = with_sentences(report.shapes).to_dict()
    if report.events:
        data["events"] = report.events
    return json.dumps(plain(data), indent=1, default=str) + "\n"


def finding_as_dict(finding: Finding) -> dict[str, Any]:
    """A finding; `samples`, `source_lines` and `checks` have the fields of `values`, `source` and `verification`.

    `verified` and `proof` are there only if an edit was proven to cure it.
    """
    cost, evidence = finding.cost, finding.evidence
    return {
        "code": finding.code,
        "slug": finding.slug,
        "severity": finding.severity.name,
        "category": str(finding.category),
        "title": finding.title,
        "status": finding.status,
        "owner": {"kind": str(finding.owner.kind), "name": finding.owner.name, "version": finding.owner.version},
        "path": finding.location.path,
        "line": finding.location.line,
        "column": finding.location.column,
        "function": finding.location.function,
        "raised_at": _place(finding.raised_at),
        "cause": finding.cause,
        "upstream": finding.upstream,
        "fix": {"text": finding.fix.text, "edit": finding.fix.edit, "safe": finding.fix.safe,
                "edits": [dataclasses.asdict(edit) for edit in finding.fix.edits]},
        "cost": {
            "seconds": cost.seconds,
            "share": cost.share,
            "ms_per_step": cost.ms_per_step,
            "kind": str(cost.kind),
            "note": cost.note,
        },
        "num_events": evidence.num_events,
        "evidence": {
            "values": [str(value) for value in evidence.values],
            "samples": [_fields(value) for value in evidence.values],
            "reasons": evidence.reasons,
            "compile_ids": evidence.compile_ids,
            "source": [source_text(line) for line in evidence.source],
            "source_lines": [_fields(line) for line in evidence.source],
            "folded": evidence.folded,
            "notes": evidence.notes,
        },
        "verification": [sentence(check) for check in finding.verification],
        "checks": [_check(check) for check in finding.verification],
        "related": finding.related,
        "ranks": finding.ranks,
        "steps": finding.steps,
        "fingerprint": finding.fingerprint,
        **({} if finding.proof is None else {"verified": True, "proof": dataclasses.asdict(finding.proof)}),
    }


def _check(check: Check) -> dict[str, Any]:
    return {"kind": str(check.kind), "subject": check.subject, "code": check.code, "place": _place(check.place)}


def _fields(value: SampledValue | SourceLine) -> dict[str, Any]:
    return dataclasses.asdict(value)


def _place(place: Location | None) -> dict[str, Any] | None:
    return None if place is None else {"path": place.path, "line": place.line, "function": place.function}


def plain(value: Any) -> Any:
    """The value with NaN and infinity as None, since JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
