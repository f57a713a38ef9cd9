"""What a recording shows about the places that tickets name: which functions were compiled, and what became of them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.eager import EagerFrame, EagerFrames
from torchtriage.diagnosis.compiles.frames import CompileHistory, Frame
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.places import owner_of, qualified_name
from torchtriage.findings.model import Finding, Owner
from torchtriage.recording.events import CompileEnd, GraphBreak, StackEntry
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import resume_of

_ARGUMENTS = re.compile(r"\([^()]*\)")
# A recording with one of these has holes, and what is not in it may have happened all the same.
_HOLES = ("TT901", "TT902", "TT903", "TT904", "TT905", "TT906", "TT907", "TT908")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFrame:
    """One code object of one process; a resume function has the name of the function it resumes."""

    path: str
    name: str
    qualname: str
    frame: Frame
    owner: Owner

    def is_called(self, name: str) -> bool:
        """Whether a ticket means this function by `name`; a class means every method of it."""
        name = name.strip().partition("(")[0]
        if "." not in name:
            return name in (self.name, self.qualname.rpartition(".")[0])
        return self.qualname == name or (self.qualname == self.name == name.rpartition(".")[2])

    @property
    def was_compiled(self) -> bool:
        """Whether a compile went through to its end; a log tells of recompiles only, which come after one that did."""
        frame = self.frame
        return any(end.produced_code for end in frame.ends) or bool(frame.recompiles and not frame.starts and not frame.ends)

    @property
    def num_compiles(self) -> int:
        return max(len(self.frame.starts), len(self.frame.ends), len(self.frame.recompiles) + 1)


class Observed:
    """A recording's compiled frames, graph breaks and findings, those that the source accepts among them."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.findings: list[Finding] = diagnose(recording)
        self.fingerprints = {finding.fingerprint for finding in self.findings}
        self.frames = [frame for process in recording.processes for frame in _seen_frames(process)]
        self.breaks: list[GraphBreak] = list(recording.of(GraphBreak))
        self.eager: list[EagerFrame] = []
        for process in recording.processes:
            self.eager.extend(EagerFrames.of(process).behind(process.of(GraphBreak)))
        self.ends: list[CompileEnd] = list(recording.of(CompileEnd))

    @property
    def hole(self) -> str:
        """Why the recording cannot prove that something did not happen; empty if it can."""
        return next((f"the recording has holes: {f.title} ({f.code})" for f in self.findings if f.code in _HOLES), "")

    def named(self, name: str, files: Iterable[str] = ()) -> list[SeenFrame]:
        """The compiled functions of this name; of those in these files if any is there."""
        found = [frame for frame in self.frames if frame.is_called(name)]
        return [frame for frame in found if any(same_file(frame.path, file) for file in files)] or found

    def at(self, file: str, name: str) -> list[SeenFrame]:
        """The compiled functions of this name in this file."""
        return [frame for frame in self.frames if same_file(frame.path, file) and frame.is_called(name)]


def _seen_frames(process: Process) -> Iterable[SeenFrame]:
    for (path, function, line), frame in CompileHistory.of(process).frames.items():
        origin = resume_of(function)
        qualname = qualified_name(process, StackEntry(path=path, line=line or 0, function=function))
        yield SeenFrame(
            path=path, name=origin[0] if origin else function, qualname=qualname, frame=frame, owner=owner_of(path, process.program),
        )


def same_file(one: str, other: str) -> bool:
    """Whether one path is the end of the other: a ticket's is relative, or comes from another machine."""
    short, long = sorted((_parts(one), _parts(other)), key=len)
    return bool(short) and long[-len(short):] == short


def same_base(one: str, other: str) -> bool:
    return _parts(one)[-1:] == _parts(other)[-1:]


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]


def names_in(function: str) -> list[str]:
    """`A.update(), A.normalize()` -> ["A.update", "A.normalize"]."""
    return [name for part in _ARGUMENTS.sub("", function).split(",") if (name := part.strip())]
