"""Proposed edits as the `fixes` of SARIF results, which editors offer to apply."""

import json
import re
from collections.abc import Iterator
from typing import Any

from torchtriage.findings.edits.proposal import FixReport, ProposedEdit
from torchtriage.findings.report import Report
from torchtriage.reporters import sarif

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


def render(report: Report, fixes: FixReport) -> str:
    """The SARIF log of a report; each result has one fix per option, the best first."""
    log = json.loads(sarif.render(report))
    options = {proposal.finding.fingerprint: proposal.edits for proposal in fixes.proposals}
    for finding, result in zip(report.findings, log["runs"][0]["results"], strict=True):
        found = [_fix(proposed, report) for proposed in options.get(finding.fingerprint, ())]
        if found:
            result["fixes"] = found
    return json.dumps(log, indent=1) + "\n"


def _fix(proposed: ProposedEdit, report: Report) -> dict[str, Any]:
    edit = proposed.edit
    return {
        "description": {"text": f"{edit.text} ({edit.label})"},
        "artifactChanges": list(_changes(proposed, report)),
    }


def _changes(proposed: ProposedEdit, report: Report) -> Iterator[dict[str, Any]]:
    paths = list(dict.fromkeys(change.path for change in proposed.edit.changes))
    for text in re.split(r"^(?=--- a/)", proposed.diff, flags=re.MULTILINE)[1:]:
        name = text.split("\n", 1)[0].removeprefix("--- a/")
        path = next((path for path in paths if path.replace("\\", "/").endswith(name)), name)
        yield {"artifactLocation": sarif.artifact(path, report.run), "replacements": list(_replacements(text))}


def _replacements(diff: str) -> Iterator[dict[str, Any]]:
    """The replaced regions of a file; a region ends before the first column of its last line."""
    number, start, deleted = 0, 0, 0
    inserted: list[str] = []
    for line in [*diff.splitlines(keepends=True)[2:], " "]:
        hunk = _HUNK.match(line)
        if line[:1] in "-+" and not hunk:
            if not deleted and not inserted:
                start = number
            if line[0] == "-":
                deleted, number = deleted + 1, number + 1
            else:
                inserted.append(line[1:])
            continue
        if line.startswith("\\"):       # no newline at the end of the file
            continue
        if deleted or inserted:
            region = {"startLine": start, "startColumn": 1, "endLine": start + deleted, "endColumn": 1}
            yield {"deletedRegion": region, "insertedContent": {"text": "".join(inserted)}}
            deleted, inserted = 0, []
        number = int(hunk[1]) if hunk else number + 1
