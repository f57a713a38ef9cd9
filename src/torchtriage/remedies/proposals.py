"""Proposes edits for the findings of a recording."""

import difflib
from collections.abc import Mapping, Sequence

from torchtriage.findings.edits.proposal import Combination, Proposal, ProposedEdit
from torchtriage.findings.model import Edit, Finding, OwnerKind
from torchtriage.remedies.tree import UneditableError
from torchtriage.remedies.workspace import Workspace


def proposals(findings: Sequence[Finding], workspace: Workspace) -> list[Proposal]:
    """One proposal per finding, in the order of the report."""
    return [_proposal(finding, workspace) for finding in findings]


def _proposal(finding: Finding, workspace: Workspace) -> Proposal:
    possible, reasons = [], []
    for edit in finding.fix.edits:
        try:
            files = workspace.edited(edit.changes)
        except UneditableError as error:
            reasons.append(str(error))
            continue
        possible.append(ProposedEdit(edit=edit, diff=diff_of(files, workspace)))
    if possible:
        return Proposal(finding=finding, edits=tuple(possible))
    return Proposal(finding=finding, reason=reasons[0] if reasons else _no_edit(finding))


def _no_edit(finding: Finding) -> str:
    if finding.owner.kind in (OwnerKind.LIBRARY, OwnerKind.TORCH, OwnerKind.PYTHON):
        return f"the line belongs to {finding.owner}, and no setting is known that helps from outside"
    if finding.location.line is None:
        return "it concerns the entire run, not a line"
    if not finding.code.startswith(("TT1", "TT2", "TT3")):
        return "no edit is known for this rule: the fix depends on what the training is to do"
    return "no edit is known for this statement; the fix of the report says what to change by hand"


def combined(choices: Sequence[tuple[Finding, Edit]], workspace: Workspace) -> tuple[Combination, dict[str, bytes]]:
    """These edits made together; an edit that does not fit beside the earlier ones is left out.

    Also the new content of each file.
    """
    kept: list[Edit] = []
    files: dict[str, bytes] = {}
    left_out = []
    for finding, edit in choices:
        if edit in kept:
            continue
        changes = tuple(dict.fromkeys(change for own in (*kept, edit) for change in own.changes))
        try:
            files = workspace.edited(changes)
        except UneditableError as error:
            left_out.append((finding, str(error)))
            continue
        kept.append(edit)
    together = Combination(edits=tuple(kept), diff=diff_of(files, workspace), left_out=tuple(left_out))
    return together, files


def diff_of(files: Mapping[str, bytes], workspace: Workspace) -> str:
    """The unified diff of files; `git apply` and `patch -p1` take it."""
    return "".join(_diff(workspace.content(path), content, workspace.shown(path)) for path, content in files.items())


def _diff(before: bytes, after: bytes, name: str) -> str:
    """A unified diff of the bytes, with the line endings of the file."""
    old, new = (_lines(content) for content in (before, after))
    lines = []
    for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="\n"):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _lines(content: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape") for line in content.splitlines(keepends=True)]
