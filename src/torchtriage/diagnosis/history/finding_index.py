"""An index from each event of a process to its finding, which also names frames for people."""

from collections.abc import Collection
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.eager import EagerFrames, FrameName
from torchtriage.diagnosis.compiles.frames import Compile, FrameKey, frame_key
from torchtriage.diagnosis.compiles.resume_frames import BreakKey, break_key, breaks_of_resume_frames
from torchtriage.diagnosis.coverage.limits import LIMIT_SKIP
from torchtriage.diagnosis.effects import causes_of_effects
from torchtriage.diagnosis.graph_breaks.finding import break_findings
from torchtriage.diagnosis.places import frame_name, locate
from torchtriage.diagnosis.recompiles.finding import recompile_findings
from torchtriage.diagnosis.recompiles.fold import folded_into
from torchtriage.diagnosis.rules import fingerprint_of
from torchtriage.diagnosis.totals import has_learning
from torchtriage.findings.model import UNKNOWN_PLACE, Location
from torchtriage.recording.events import Anomaly, FrameSkipped, GraphBreak, LimitHit, Placed
from torchtriage.recording.recording import Process
from torchtriage.text import resume_of, short_place


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEntry:
    """A break in a few words, `print() at policy.py:52`, with the fingerprint of its finding."""

    label: str
    fingerprint: str
    location: Location


class FindingIndex:
    """Fingerprints of findings by event; empty for an event whose finding is not among the reported ones."""

    def __init__(self, process: Process, reported: Collection[str]) -> None:
        self._process = process
        self._reported = reported
        self._causes = causes_of_effects(process)
        self._functions: dict[FrameKey, str] = {}
        self._breaks = self._index_breaks()
        self._recompiles = self._index_recompiles()
        self._made_by = breaks_of_resume_frames(process)
        self._limits: dict[FrameKey, str] = {}
        for hit in process.of(LimitHit):
            if frame_key(hit) not in self._limits:
                self._limits[frame_key(hit)] = self._at("TT301", hit, hit.limit_name)
        self._learning = self._index_learning() if has_learning(process) else {}
        eager = EagerFrames.of(process)
        self._left_to_eager: dict[FrameName, str] = {}
        for event in process.of(GraphBreak):
            if eager.is_whole(event):
                self._left_to_eager[eager.root(event)] = self.of_break(event).fingerprint

    def _index_breaks(self) -> dict[BreakKey, BreakEntry]:
        entries = {}
        for broken, finding in break_findings(self._process):
            entries[break_key(broken.events[0])] = BreakEntry(
                label=f"{broken.cause.subject} at {short_place(broken.own.path, broken.own.line)}",
                fingerprint=self._if_reported(finding.fingerprint), location=finding.location,
            )
        return entries

    def _index_recompiles(self) -> dict[int, str]:
        """By identity of the event: equal recompiles may belong to several findings."""
        fingerprints: dict[int, str] = {}
        pairs = recompile_findings(self._process)
        folded = folded_into([finding for _, finding in pairs])
        for group, finding in pairs:
            fingerprint = self._if_reported(folded.get(finding.fingerprint, finding.fingerprint))
            for event in group.recompiles:
                fingerprints[id(event)] = fingerprint
        return fingerprints

    def _index_learning(self) -> dict[str, str]:
        from torchtriage.diagnosis.learning.finding import learning_findings

        findings = learning_findings(self._process)
        return {code: self._if_reported(finding.fingerprint) for code, finding in findings.items()}

    def of_break(self, event: GraphBreak) -> BreakEntry:
        unknown = BreakEntry(label=event.type, fingerprint="", location=UNKNOWN_PLACE)
        return self._breaks.get(break_key(event), unknown)

    def of_compile(self, compile_: Compile) -> str:
        """The finding of the recompile; for a resume frame, of the break that made it if only one can have."""
        if compile_.recompile is not None and id(compile_.recompile) in self._recompiles:
            return self._recompiles[id(compile_.recompile)]
        made_by = self._made_by.get(compile_.key, ())
        if len(made_by) == 1:
            return self._breaks[made_by[0]].fingerprint
        if compile_.failure is not None and compile_.failure.is_suppressed:
            return self._at("TT304", compile_.place, compile_.failure.type)
        return ""

    def of_limit(self, hit: LimitHit) -> str:
        return self._limits[frame_key(hit)]

    def of_skip(self, skip: FrameSkipped) -> str:
        """A skip follows from a break or a limit, or is itself a finding."""
        if LIMIT_SKIP in skip.reason:
            return self._limits.get(frame_key(skip), "")
        return self._left_to_eager.get((skip.path, skip.function)) or self._at("TT302", skip, skip.reason)

    def of_anomaly(self, anomaly: Anomaly) -> str:
        return self._learning.get(anomaly.code, "")

    def function(self, event: Placed) -> str:
        """`Policy.forward`, also for a frame that resumes it."""
        key = frame_key(event)
        if key not in self._functions:
            self._functions[key] = frame_name(locate(self._process, event), event)
        return self._functions[key]

    def name(self, event: Placed) -> str:
        """`Policy.forward`; for a resume frame `Policy.forward, resumed at line 52`."""
        resume = resume_of(event.function)
        return f"{self.function(event)}, resumed at line {resume[1]}" if resume else self.function(event)

    def _at(self, code: str, event: Placed, reason: str) -> str:
        return self._if_reported(fingerprint_of(code, locate(self._process, event), reason, self._process))

    def _if_reported(self, fingerprint: str) -> str:
        fingerprint = self._causes.get(fingerprint, fingerprint)
        return fingerprint if fingerprint in self._reported else ""
