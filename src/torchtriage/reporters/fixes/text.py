"""Proposed edits as text: each finding with its diff, then the findings without an edit."""

import os

from torchtriage.findings.edits.proposal import FixReport, Proposal
from torchtriage.findings.model import EditLabel, Finding
from torchtriage.text import counted, path_from_here, row

_MEANINGS = {
    EditLabel.SAFE: "cannot change a number",
    EditLabel.SETTING: "a line of configuration",
    EditLabel.REVIEW: "read it before you apply it",
}


def render(report: FixReport, *, verbose: bool = False, next_command: str = "") -> str:
    possible = [proposal for proposal in report.proposals if proposal.edits]
    blocks = [_with_diff(proposal, verbose) for proposal in possible]
    without = [proposal for proposal in report.proposals if not proposal.edits]
    if without:
        blocks.append("no edit:\n" + "".join(f"  {head(p.finding)}\n    {p.reason}\n" for p in without))
    for finding, reason in report.together.left_out:
        blocks.append(f"left out beside the others: {head(finding)}\n  {reason}; run fix again after these edits\n")
    blocks.append(_summary(report, possible, next_command))
    return "\n".join(blocks)


def _with_diff(proposal: Proposal, verbose: bool) -> str:
    """The finding and the diff of its first edit; of the others the text, or all diffs if verbose."""
    lines = [f"{head(proposal.finding)}\n"]
    for number, proposed in enumerate(proposal.edits):
        label = proposed.edit.label
        option = "  or " if number else "  "
        lines.append(f"{option}[{label}: {_MEANINGS[label]}] {proposed.edit.text}\n")
        if not number or verbose:
            lines.append(proposed.diff)
    return "".join(lines)


def head(finding: Finding) -> str:
    place = f" at {os.path.basename(finding.location.path)}:{finding.location.line}" if finding.location.line else ""
    return f"{finding.code} {finding.severity.name}  {finding.title}{place}"


def _summary(report: FixReport, possible: list[Proposal], next_command: str) -> str:
    if not report.proposals:
        return "no findings\n"
    counts = {label: sum(p.first([label]) is not None for p in possible) for label in EditLabel}
    listing = row(f"{number} {label}" for label, number in counts.items() if number)
    head = f"{counted(len(report.proposals), 'finding')}, {len(possible)} with an edit"
    lines = [f"{head} ({listing})\n" if listing else f"{head}\n"]
    if report.written:
        lines.append(f"wrote {row(map(path_from_here, report.written))}\n")
    elif next_command and report.together.edits:
        kinds = " or ".join(report.labels)
        edits = f"{counted(len(report.together.edits), 'edit')} ({kinds})"
        lines.append(f"to apply {edits}: {next_command}\n")
    return "".join(lines)
