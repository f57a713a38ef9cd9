"""Takes out the findings that the source itself accepts, and names the comments that accept nothing."""

from torchtriage.diagnosis.places import owner_of
from torchtriage.findings.model import Finding, OwnerKind
from torchtriage.findings.suppression import Suppression, suppression_in
from torchtriage.recording.recording import Recording

Comments = dict[tuple[str, int], Suppression]


def comments_in(recording: Recording) -> Comments:
    """Every suppression in the user's lines that the recording kept."""
    found: Comments = {}
    for process in recording.processes:
        for (path, _), source in process.sources.items():
            for offset, text in enumerate(source.lines):
                suppression = suppression_in(text)
                if suppression and owner_of(path, process.facts).kind is OwnerKind.YOU:
                    found[path, source.first_line + offset] = suppression
    return found


def suppressed(findings: list[Finding], comments: Comments) -> tuple[list[Finding], int, list[str]]:
    """(findings that stay, number taken out, comments that took nothing out)."""
    used: set[tuple[str, int]] = set()
    kept = []
    for finding in findings:
        place = (finding.location.path, finding.location.line or 0)
        if place in comments and comments[place].covers(finding.code):
            used.add(place)
        else:
            kept.append(finding)
    unused = [f"{path}:{line}: ignore[{','.join(c.codes)}]" for (path, line), c in sorted(comments.items()) if (path, line) not in used]
    return kept, len(findings) - len(kept), unused
