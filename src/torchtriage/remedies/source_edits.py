"""The safe edits for findings of lint: made as those of a run are, from the statement in the file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchtriage.diagnosis.graph_breaks.edits import BreakSite, break_edits
from torchtriage.diagnosis.graph_breaks.remedies import Remedy
from torchtriage.diagnosis.statement import statement_at
from torchtriage.findings.edits.proposal import Combination
from torchtriage.findings.model import Edit, EditLabel, Finding
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process, Recording, Source
from torchtriage.remedies.proposals import combined
from torchtriage.remedies.tree import UneditableError
from torchtriage.remedies.workspace import Workspace, check_writable, project_root, write


def make_safe_edits(findings: Sequence[Finding], folder: str, *, force: bool) -> tuple[Combination, list[str]]:
    """Make the safe edit of each finding that has one, and the paths of the files that were written."""
    workspace = Workspace(project_root(Path(folder)), Recording(processes=()))
    choices = []
    for finding in findings:
        path = str(Path(folder, finding.location.path))
        edits = _safe_edits(replace(finding, location=replace(finding.location, path=path)), workspace)
        choices += [(finding, edit) for edit in edits[:1]]
    together, files = combined(choices, workspace)
    check_writable(list(files), force=force)
    write(files)
    return together, list(files)


def _safe_edits(finding: Finding, workspace: Workspace) -> list[Edit]:
    """Those of its statement; none if the file must not be edited."""
    path, line = finding.location.path, finding.location.line or 0
    try:
        lines = workspace.content(path).decode("utf-8", "replace").splitlines()
    except UneditableError:
        return []
    process = Process(sources={(path, line): Source(first_line=1, lines=tuple(lines))})
    statement = statement_at(process, path, line)
    if statement is None:
        return []
    place = StackEntry(path=path, line=line, function=finding.location.function or "")
    event = GraphBreak(path=path, line=line, function=place.function, stack=(place,))
    site = BreakSite(process=process, event=event, line=place, statement=statement, remedy=Remedy(text=""))
    return [edit for edit in break_edits(finding.code, site) if edit.label is EditLabel.SAFE]
