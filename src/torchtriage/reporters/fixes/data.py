"""Proposed edits as JSON, schema 1."""

import dataclasses
import json
from typing import Any

from torchtriage.findings.edits.proposal import FixReport, Proposal
from torchtriage.findings.model import Edit
from torchtriage.reporters.json import plain

FIX_SCHEMA = 1


def render(report: FixReport) -> str:
    return json.dumps(plain({
        "schema": FIX_SCHEMA,
        "labels": list(report.labels),
        "findings": [_proposal(proposal) for proposal in report.proposals],
        "together": {
            "edits": [edit.text for edit in report.together.edits],
            "diff": report.together.diff,
            "left_out": [
                {"fingerprint": finding.fingerprint, "reason": reason} for finding, reason in report.together.left_out
            ],
        },
        "written": list(report.written),
    }), indent=1) + "\n"


def _proposal(proposal: Proposal) -> dict[str, Any]:
    finding = proposal.finding
    return {
        "code": finding.code, "severity": finding.severity.name, "title": finding.title, "path": finding.location.path,
        "line": finding.location.line, "fingerprint": finding.fingerprint, "reason": proposal.reason,
        "edits": [{**edit_as_dict(proposed.edit), "diff": proposed.diff} for proposed in proposal.edits],
    }


def edit_as_dict(edit: Edit) -> dict[str, Any]:
    """An edit with its label, its text and its changes."""
    return dataclasses.asdict(edit)
