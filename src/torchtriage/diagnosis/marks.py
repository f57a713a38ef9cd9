"""Which finding each event belongs to, by the finding's fingerprint, and how a frame or a break is called."""

from collections.abc import Collection
from dataclasses import dataclass

from torchtriage.diagnosis.attempts import Attempt
from torchtriage.diagnosis.break_eager import FrameHistory as EagerFrames
from torchtriage.diagnosis.break_seen import short_place
from torchtriage.diagnosis.breaks import told_breaks
from torchtriage.diagnosis.coverage import LIMIT_SKIP
from torchtriage.diagnosis.frames import BreakKey, FrameKey, break_key, breaks_of_resume_frames, frame_key
from torchtriage.diagnosis.learning import told as told_learning
from torchtriage.diagnosis.places import frame_name, locate, resume_of
from torchtriage.diagnosis.recompiles import told_recompiles
from torchtriage.diagnosis.ripples import told_under
from torchtriage.diagnosis.rules import fingerprint_of
from torchtriage.findings.model import UNKNOWN_PLACE, Location
from torchtriage.recording.events import Anomaly, FrameSkipped, GraphBreak, LimitHit, Placed
from torchtriage.recording.recording import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBreak:
    """What there is to say of a break in a few words: `print() at policy.py:52`."""

    label: str
    fingerprint: str
    location: Location


class Marks:
    """The findings of one process, asked by event; an event whose finding is not among `told` has none."""

    def __init__(self, process: Process, told: Collection[str]) -> None:
        self._process = process
        self._told = told
        self._functions: dict[FrameKey, str] = {}
        self._breaks: dict[BreakKey, KnownBreak] = {}
        for found, finding in told_breaks(process):
            label = f"{found.cause.subject} at {short_place(found.own.path, found.own.line)}"
            known = KnownBreak(label=label, fingerprint=self._if_told(finding.fingerprint), location=finding.location)
            self._breaks[break_key(found.events[0])] = known
        under = told_under([finding for _, finding in told_recompiles(process)])
        self._recompiles = {
            id(event): self._if_told(under.get(finding.fingerprint, finding.fingerprint))
            for story, finding in told_recompiles(process) for event in story.recompiles
        }
        self._made_by = breaks_of_resume_frames(process)
        first_hits = {frame_key(hit): hit for hit in reversed(list(process.of(LimitHit)))}
        self._limits = {key: self._placed("TT301", hit, hit.limit_name) for key, hit in first_hits.items()}
        self._learning = {code: self._if_told(finding.fingerprint) for code, finding in told_learning(process).items()}
        eager = EagerFrames(process)
        self._sent_to_eager = {eager.root(e): self.of_break(e).fingerprint for e in process.of(GraphBreak) if eager.is_whole(e)}

    def of_break(self, event: GraphBreak) -> KnownBreak:
        return self._breaks.get(break_key(event)) or KnownBreak(label=event.type, fingerprint="", location=UNKNOWN_PLACE)

    def of_attempt(self, attempt: Attempt) -> str:
        """The recompile's cause; for a resume frame the break that made it, if only one can have."""
        if attempt.recompile is not None and id(attempt.recompile) in self._recompiles:
            return self._recompiles[id(attempt.recompile)]
        made_by = self._made_by.get(attempt.key, ())
        if len(made_by) == 1:
            return self._breaks[made_by[0]].fingerprint
        if attempt.end is not None and attempt.end.fail_type and attempt.end.suppress_errors:
            return self._placed("TT304", attempt.place, attempt.end.fail_type)
        return ""

    def of_limit(self, hit: LimitHit) -> str:
        return self._limits[frame_key(hit)]

    def of_skip(self, skip: FrameSkipped) -> str:
        """A skip is a finding of its own, or follows from a break or a limit that is one."""
        if LIMIT_SKIP in skip.reason:
            return self._limits.get(frame_key(skip), "")
        return self._sent_to_eager.get((skip.path, skip.function)) or self._placed("TT302", skip, skip.reason)

    def of_anomaly(self, anomaly: Anomaly) -> str:
        return self._learning.get(anomaly.code, "")

    def function(self, event: Placed) -> str:
        """`Policy.forward`, also for a frame that resumes it."""
        key = frame_key(event)
        if key not in self._functions:
            self._functions[key] = frame_name(locate(self._process, event), event)
        return self._functions[key]

    def name(self, event: Placed) -> str:
        """`Policy.forward`; of a resume frame `Policy.forward, resumed at line 52`."""
        resume = resume_of(event.function)
        return f"{self.function(event)}, resumed at line {resume[1]}" if resume else self.function(event)

    def _placed(self, code: str, event: Placed, reason: str) -> str:
        return self._if_told(fingerprint_of(code, locate(self._process, event), reason, self._process))

    def _if_told(self, fingerprint: str) -> str:
        return fingerprint if fingerprint in self._told else ""
