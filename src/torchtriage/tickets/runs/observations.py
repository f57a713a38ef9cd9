"""What a recording shows about the places that tickets name: compiled functions, graph breaks, findings."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.eager import EagerFrame, EagerFrames
from torchtriage.diagnosis.compiles.frames import CompileHistory, Frame
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.places import owner_of, qualified_name
from torchtriage.findings.model import Finding, Owner
from torchtriage.recording.events import CompileEnd, GraphBreak, StackEntry
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import original_function
from torchtriage.tickets.checks.matching import same_file

_ARGUMENTS = re.compile(r"\([^()]*\)")
# A recording with one of these findings is incomplete: an event that is missing from it may still have happened.
_INCOMPLETE = ("TT901", "TT902", "TT903", "TT904", "TT905", "TT906", "TT907", "TT908")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFrame:
    """One code object of one process; a resume function has the name of the function it resumes."""

    path: str
    name: str
    qualname: str
    frame: Frame
    owner: Owner

    def is_called(self, name: str) -> bool:
        """Whether a ticket means this function by `name`; the name of a class means each of its methods."""
        name = name.strip().partition("(")[0]
        if "." not in name:
            return name in (self.name, self.qualname.rpartition(".")[0])
        return self.qualname == name or (self.qualname == self.name == name.rpartition(".")[2])

    @property
    def was_compiled(self) -> bool:
        """Whether a compile completed. A log may show only recompiles, and each follows a completed compile."""
        frame = self.frame
        has_only_recompiles = bool(frame.recompiles and not frame.starts and not frame.ends)
        return has_only_recompiles or any(end.produced_code for end in frame.ends)

    @property
    def num_compiles(self) -> int:
        return max(len(self.frame.starts), len(self.frame.ends), len(self.frame.recompiles) + 1)


class Observations:
    """A recording's compiled frames, graph breaks and findings, including findings accepted by a source comment."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.findings: list[Finding] = diagnose(recording)
        self.fingerprints = {finding.fingerprint for finding in self.findings}
        self.frames = [frame for process in recording.processes for frame in _frames(process)]
        self.breaks: list[GraphBreak] = list(recording.of(GraphBreak))
        self.eager: list[EagerFrame] = []
        for process in recording.processes:
            self.eager.extend(EagerFrames.of(process).behind(tuple(process.of(GraphBreak))))
        self.ends: list[CompileEnd] = list(recording.of(CompileEnd))

    @property
    def gap(self) -> str:
        """Why the recording cannot prove that something did not happen; empty if it can."""
        for finding in self.findings:
            if finding.code in _INCOMPLETE:
                return f"the recording is incomplete: {finding.title} ({finding.code})"
        return ""

    def named(self, name: str, files: Iterable[str] = ()) -> list[CompiledFrame]:
        """The compiled functions of this name; only those in these files, if there are any."""
        frames = [frame for frame in self.frames if frame.is_called(name)]
        in_files = [frame for frame in frames if any(same_file(frame.path, file) for file in files)]
        return in_files or frames

    def at(self, file: str, name: str) -> list[CompiledFrame]:
        """The compiled functions of this name in this file."""
        return [frame for frame in self.frames if same_file(frame.path, file) and frame.is_called(name)]


def _frames(process: Process) -> Iterator[CompiledFrame]:
    for (path, function, line), frame in CompileHistory.of(process).frames.items():
        yield CompiledFrame(
            path=path, name=original_function(function),
            qualname=qualified_name(process, StackEntry(path=path, line=line or 0, function=function)),
            frame=frame, owner=owner_of(path, process.program),
        )


def names_in(function: str) -> list[str]:
    """The functions that a ticket names: `A.update(), A.normalize()` -> ["A.update", "A.normalize"]."""
    return [name for part in _ARGUMENTS.sub("", function).split(",") if (name := part.strip())]
