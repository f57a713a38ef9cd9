"""The suppression comments in the source lines that a recording keeps."""

from torchtriage.diagnosis.places import owner_of
from torchtriage.findings.model import OwnerKind
from torchtriage.findings.selection import Comments, suppression_in
from torchtriage.recording.recording import Recording
from torchtriage.recording.sources import CONTEXT


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
