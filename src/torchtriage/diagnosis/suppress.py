"""Suppression of findings by comments in the source: `# torchtriage: ignore[TT101] reason`."""

import re
from dataclasses import dataclass

from torchtriage.diagnosis.places import owner_of
from torchtriage.findings.model import Finding, OwnerKind
from torchtriage.recording.recording import Recording
from torchtriage.recording.sources import CONTEXT

_COMMENT = re.compile(r"#\s*torchtriage:\s*ignore\b(?:\[([^\]]*)\])?\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """The codes that a comment accepts on its line, and its reason."""

    codes: tuple[str, ...]
    reason: str

    def covers(self, code: str) -> bool:
        return code in self.codes


Comments = dict[tuple[str, int], Suppression]       # by path and line


def suppression_in(line: str) -> Suppression | None:
    """The suppression on a source line; without a code it accepts nothing and is reported as unused."""
    match = _COMMENT.search(line)
    if match is None:
        return None
    codes = tuple(code.strip().upper() for code in (match[1] or "").split(",") if code.strip())
    return Suppression(codes=codes, reason=match[2].strip())


def comments_in(recording: Recording) -> Comments:
    """Every suppression in the user's source lines, as far as the recording has them."""
    comments: Comments = {}
    for process in recording.processes:
        for (path, line), source in process.sources.items():
            for number, text in enumerate(source.lines, start=source.first_line):
                # Comments further away are about code that this run may not have reached.
                suppression = suppression_in(text) if abs(number - line) <= CONTEXT else None
                if suppression and owner_of(path, process.program).kind is OwnerKind.YOU:
                    comments[path, number] = suppression
    return comments


def suppressed(findings: list[Finding], comments: Comments) -> tuple[list[Finding], int, list[str]]:
    """(remaining findings, number of suppressed findings, comments that suppressed nothing)."""
    used: set[tuple[str, int]] = set()
    remaining = []
    for finding in findings:
        place = (finding.location.path, finding.location.line or 0)
        if place in comments and comments[place].covers(finding.code):
            used.add(place)
        else:
            remaining.append(finding)
    unused = []
    for (path, line), comment in sorted(comments.items(), key=lambda item: item[0]):
        if (path, line) not in used:
            unused.append(f"{path}:{line}: ignore[{','.join(comment.codes)}]")
    return remaining, len(findings) - len(remaining), unused
