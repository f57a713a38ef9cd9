"""Tries the edits of a program in copies of its folder: each option alone, then those that hold together."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchtriage.diagnosis.report import build_report
from torchtriage.errors import CommandError
from torchtriage.findings.edits.proposal import Proposal, ProposedEdit
from torchtriage.findings.edits.trials import EditTrial, TrialReport
from torchtriage.findings.model import EditLabel, Finding
from torchtriage.findings.proof.verdict import Proof
from torchtriage.findings.report import Report
from torchtriage.proof import sides
from torchtriage.proof.verify import ProofOptions, prove
from torchtriage.recording.reader import is_recording, read_recording
from torchtriage.recording.recording import Recording
from torchtriage.remedies.proposals import combined, proposals
from torchtriage.remedies.workspace import Workspace, write

MIN_SECONDS = 5.0       # a trial that would get less than this is not begun
FAIR_SECONDS = 120.0    # a trial gets this even if the others then get less: one of a small program takes about 70 s


@dataclass(slots=True, kw_only=True)
class EditExperiment:
    """One program, its unedited copy and the trials on it, which an interruption leaves as they are."""

    script: str
    arguments: Sequence[str]
    work: Path
    budget: float                       # seconds, of all trials together
    labels: Sequence[EditLabel]
    say: Callable[[str], None]
    steps: int | None = None
    wanted: Callable[[Report], Report] = lambda report: report      # applies --select, --ignore and the baseline
    report: Report | None = None
    _trials: list[EditTrial] = field(default_factory=list)
    _kept: list[EditTrial] = field(default_factory=list)
    _dropped: list[EditTrial] = field(default_factory=list)
    _proposals: Sequence[Proposal] = ()
    _together: Proof | None = None
    _workspace: Workspace | None = None
    _ended_by: str = ""
    _start: float = field(default_factory=time.monotonic)
    _number: int = 0
    _num_left: int = 1                  # findings whose edits are still to be tried, and the trial of all together

    def run(self) -> None:
        """Observe the program, then try its edits until all are tried or the budget ends."""
        recording = self._observe()
        self.report = self.wanted(build_report(recording))
        assert self._workspace is not None
        self._proposals = proposals(self.report.findings, self._workspace)
        self._num_left = 1 + sum(bool(self._options(proposal)) for proposal in self._proposals)
        for proposal in self._proposals:
            if not self._try_options(proposal):
                return
        self._try_together()

    def _observe(self) -> Recording:
        """The recording of the program in the first copy of its folder."""
        copy = self.work / "observed"
        if not sides.copy_folder(Path.cwd(), copy):
            raise CommandError(
                f"{Path.cwd()} holds too many files to be copied; run fix --verify in the folder of the program")
        script = self._in(copy)
        recording = self.work / "observed.triage"
        command = [sys.executable, "-m", "torchtriage", "run", "-q", "--fail-on", "never", "-o", str(recording)]
        self.say(f"observing {self.script}")
        done = subprocess.run(
            [*command, str(script), *self.arguments], cwd=copy, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace",
        )
        if not is_recording(recording):
            last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
            raise CommandError(f"{self.script} could not be observed: {last[0]}")
        read = read_recording(recording)
        self._workspace = Workspace(copy, read)
        return read

    def _in(self, folder: Path) -> Path:
        """The script in a copy of the working folder."""
        script, cwd = Path(self.script).resolve(), Path.cwd().resolve()
        if not script.is_relative_to(cwd):
            raise CommandError(f"{self.script} is outside of {cwd}; run fix --verify in the folder of the program")
        return folder / script.relative_to(cwd)

    def _try_options(self, proposal: Proposal) -> bool:
        """Try the options of a finding until one is verified; False if the budget ended."""
        for proposed in self._options(proposal):
            if self._left() < MIN_SECONDS:
                self._ended_by = "budget"
                return False
            self.say(f"trying {proposal.finding.code} [{proposed.edit.label}]: {proposed.edit.text}")
            proof = self._proof([(proposal.finding, proposed)])
            trial = EditTrial(finding=proposal.finding, proposed=proposed, proof=proof)
            self._trials.append(trial)
            if proof.is_verified:
                self._kept.append(trial)
                break
        self._num_left -= bool(self._options(proposal))
        return True

    def _try_together(self) -> None:
        """Prove the kept edits together; while they do not hold, the last one is dropped."""
        while len(self._kept) > 1:
            if self._left() < MIN_SECONDS:
                self._ended_by = "budget"
                return
            self.say(f"trying {len(self._kept)} edits together")
            self._together = self._proof([(trial.finding, trial.proposed) for trial in self._kept])
            if self._together.is_verified:
                return
            self._dropped.append(self._kept.pop())
            self._together = None

    def _proof(self, choices: Sequence[tuple[Finding, ProposedEdit]]) -> Proof:
        """The proof of the program with these edits, made in a copy, against the program as it is."""
        assert self._workspace is not None
        self._number += 1
        work = self.work / f"trial{self._number}"
        before, after = sides.script_sides(self.script, self.script, self.arguments, work)
        if after.cwd is None:
            raise CommandError(f"{Path.cwd()} holds too many files to be copied")
        _, files = combined([(finding, proposed.edit) for finding, proposed in choices], self._workspace)
        write({str(after.cwd / self._workspace.shown(path)): content for path, content in files.items()})
        options = ProofOptions(
            budget=max(self._left() / self._num_left, min(self._left(), FAIR_SECONDS)), steps=self.steps,
            must_fix=[finding.fingerprint for finding, _ in choices],
        )
        return prove(before, after, work, options)

    def _left(self) -> float:
        return self.budget - (time.monotonic() - self._start)

    def interrupted(self) -> None:
        self._ended_by = "Ctrl-C"

    def result(self) -> TrialReport:
        """What was shown so far."""
        patch = ""
        if self._kept and self._workspace is not None:
            together, _ = combined([(trial.finding, trial.proposed.edit) for trial in self._kept], self._workspace)
            patch = together.diff
        tried = {id(trial.finding) for trial in self._trials}
        return TrialReport(
            trials=self._trials, kept=self._kept, together=self._together, dropped=self._dropped, patch=patch,
            without=[(p.finding, self._why_not(p)) for p in self._proposals if not self._options(p)],
            untried=[p.finding for p in self._proposals if self._options(p) and id(p.finding) not in tried],
            ended_by=self._ended_by, seconds=time.monotonic() - self._start,
        )

    def _options(self, proposal: Proposal) -> list[ProposedEdit]:
        return [proposed for proposed in proposal.edits if proposed.edit.label in self.labels]

    def _why_not(self, proposal: Proposal) -> str:
        if proposal.edits:
            labels = ", ".join(dict.fromkeys(proposed.edit.label for proposed in proposal.edits))
            return f"its edits are labelled {labels}; try them with --label"
        return proposal.reason


def patch_name(script: str) -> str:
    """The file in which the verified edits are left: train.py -> train-fix.patch."""
    return f"{os.path.splitext(os.path.basename(script))[0]}-fix.patch"
