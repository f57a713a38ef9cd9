"""The runs of a proof: both sides in turns, then those that measure noise."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torchtriage.capture.proof.arranged_draws import SWAPPED
from torchtriage.capture.proof.setting import ProofSetting
from torchtriage.diagnosis.report import build_report
from torchtriage.errors import TriageError
from torchtriage.findings.model import Finding
from torchtriage.launch import environment
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.numbers.rows import RunNumbers, read_numbers
from torchtriage.proof.runs.process import Job, Program, RunOutcome, run_at_once, run_jobs_in_turns
from torchtriage.proof.runs.surroundings import file_times, paths_below, remove_new, written_files, written_text
from torchtriage.proof.sides import Side
from torchtriage.proof.step_times import is_round_needed
from torchtriage.recording.reader import read_recording
from torchtriage.recording.recording import Recording
from torchtriage.text import duration

FIRST_SHARE = 0.3       # of the budget: the first run of each side is stopped after it
MIN_SECONDS = 30.0      # of a run: importing torch alone may take ten
MAX_OUTPUT = 4 << 20    # bytes of stdout that are compared
# torch compiles in this many processes; more than one would work on while the run is paused
_THREADS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofVariant:
    """One way to run a side."""

    setting: ProofSetting

    def variables(self, forced: Mapping[str, Any], paused: str) -> dict[str, str]:
        fields = {**asdict(self.setting), **forced, "paused": paused}
        return {**_THREADS, environment.PROOF: ProofSetting(**fields).to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRun:
    """One finished run, as it was read."""

    recording: Recording
    numbers: RunNumbers
    stdout: str = ""
    written: str = ""           # the lines of the text files that it wrote
    exit_status: int = 0
    was_stopped: bool = False
    seconds: float = 0.0
    last_lines: str = ""

    @property
    def has_failed(self) -> bool:
        return bool(self.exit_status) and not self.was_stopped

    @property
    def output(self) -> str:
        """All lines in which it gives its results."""
        return f"{self.stdout}\n{self.written}" if self.written else self.stdout

    @property
    def findings(self) -> Sequence[Finding]:
        return build_report(self.recording).findings


@dataclass(slots=True, kw_only=True)
class ProofRuns:
    """All runs of a proof by name: `before`, `after`, `before again`, `after again`, `eager`, `moved 1`, ..."""

    before: Side
    after: Side
    runs: dict[str, SideRun] = field(default_factory=dict)
    files: dict[str, Sequence[str]] = field(default_factory=dict)
    in_turns: bool = False
    num_runs: int = 0

    def get(self, name: str) -> SideRun | None:
        return self.runs.get(name)

    def result(self, name: str) -> SideRun | None:
        """The run of a side whose numbers are compared.

        BEFORE is run eager if it fails compiled. Steps inside a compiled function are not seen: then the numbers are
        those of the eager run of the side, with the output of the compiled one.
        """
        eager = {"before": "eager", "after": "after eager"}[name]
        run = next(iter(self.of(name, *(["eager"] if name == "before" else []))), None)
        exact = next(iter(self.of(eager)), None)
        if run is None or run.numbers.rows or exact is None or not exact.numbers.rows:
            return run
        return replace(run, numbers=exact.numbers)

    def of(self, *names: str) -> list[SideRun]:
        """Those that were run and did not fail."""
        return [self.runs[name] for name in names if name in self.runs and not self.runs[name].has_failed]


class Runs:
    """Runs both sides as often as needed; `say` receives progress messages."""

    def __init__(
        self, evidence: ProofRuns, work: Path, limit: TimeLimit, *, steps: int, seed: int, stdin: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self.evidence, self.work, self.limit, self.say = evidence, work, limit, say
        self._forced = {name: value for name, value in (("steps", steps), ("seed", seed)) if value}
        self.stdin = stdin
        self._known = {
            name: paths_below(side.cwd) for name, side in self._sides().items() if side.is_copy and side.cwd is not None
        }

    def first(self) -> None:
        """Both sides, in turns."""
        evidence = self.evidence
        self.say("running both sides in turns")
        places = {name: _watched_files(side) for name, side in self._sides().items()}
        self._in_turns(["before", "after"], FIRST_SHARE)
        evidence.in_turns = True
        for name, side in self._sides().items():
            evidence.files[name] = written_files(places[name], _watched_files(side))
            self.say(f"{side.label}: {self._outcome(evidence.runs[name])}")

    def second_round(self) -> None:
        """Both sides once more in turns, where their step times may decide."""
        runs = self.evidence.runs
        if runs["before"].has_failed or not is_round_needed(runs["before"].recording, runs["after"].recording):
            return
        self.say("running both sides once more, for their step times")
        self._in_turns(["before again", "after again"])

    def noise(self) -> None:
        """BEFORE again, eager, and eager with every result moved by one rounding."""
        evidence = self.evidence
        names = ["moved 1", "moved 2"]
        settings = [ProofSetting(eager=True, rounding=1), ProofSetting(eager=True, rounding=2)]
        if not evidence.before.eager:
            names, settings = ["eager", *names], [ProofSetting(eager=True), *settings]
            if "before again" not in evidence.runs:
                names, settings = ["before again", *names], [ProofSetting(), *settings]
        missing = [(name, setting) for name, setting in zip(names, settings, strict=True) if name not in evidence.runs]
        names, settings = [name for name, _ in missing], [setting for _, setting in missing]
        self.say("running BEFORE again, and eager with every result moved by one rounding, to measure its noise")
        self._beside(names, [("before", setting) for setting in settings])

    def after_again(self) -> None:
        """To see whether a new finding comes each time."""
        if "after again" not in self.evidence.runs:
            self.say("running AFTER again: it has a new finding")
            self._beside(["after again"], [("after", ProofSetting())])

    def eager_sides(self) -> None:
        """Both sides eager, to count the operations that they execute."""
        missing = [(name, side) for name, side in (("eager", "before"), ("after eager", "after"))
                   if name not in self.evidence.runs]
        if missing:
            self.say("running both sides eager, to count their operations")
            self._beside([name for name, _ in missing], [(side, ProofSetting(eager=True)) for _, side in missing])

    def compiled_branches(self) -> None:
        """Both sides eager once more, with `is_compiling()` as compiled code sees it."""
        self.say("running both sides eager again, in the branches that compiled code takes")
        setting = ProofSetting(eager=True, as_compiled=True)
        self._beside(["before as compiled", "after as compiled"], [("before", setting), ("after", setting)])

    def keyed(self, arrangement: str) -> None:
        """Both sides eager, with the values of each random operator given by a key instead of its order."""
        name, keyed = arrangement.partition(":")[0], ProofSetting(eager=True, draws=arrangement)
        self.say(f"the numbers differ: running both sides with the same random draws, arranged by {name}")
        jobs = {
            "keyed after": ("after", keyed), "keyed before": ("before", keyed),
            "keyed moved": ("before", replace(keyed, rounding=3)),
        }
        if name == SWAPPED:     # exchanged in AFTER; BEFORE has run with the same draws, arranged by step
            jobs = {"keyed after": jobs["keyed after"]}
        self._beside(list(jobs), list(jobs.values()))

    def _sides(self) -> dict[str, Side]:
        return {"before": self.evidence.before, "after": self.evidence.after}

    def _in_turns(self, names: Sequence[str], share: float = 1.0) -> None:
        """One run of each side."""
        began = time.time()
        jobs = [self._job(name, ProofSetting(eager=side.eager)) for name, side in self._sides().items()]
        outcomes = run_jobs_in_turns(jobs, self._seconds(share), self.limit.left)
        for name, side, outcome in zip(names, self._sides(), outcomes, strict=True):
            self._keep(name, side, outcome, began)

    def _beside(self, names: Sequence[str], jobs: Sequence[tuple[str, ProofSetting]]) -> None:
        """Beside each other, or one by one where they write files, which would be those of another run."""
        num_at_once = 1 if any(self.evidence.files.values()) else min(2, os.cpu_count() or 1)
        pairs = list(zip(names, jobs, strict=True))
        for some in [[pair] for pair in pairs] if num_at_once == 1 else [pairs]:
            began = time.time()
            outcomes = run_at_once([self._job(*job) for _, job in some], self._seconds(), num_at_once)
            for (name, (side, _)), outcome in zip(some, outcomes, strict=True):
                self._keep(name, side, outcome, began)

    def _job(self, name: str, setting: ProofSetting) -> Job:
        side = self._sides()[name]
        if side.cwd is not None and name in self._known and self.evidence.files.get(name):
            remove_new(side.cwd, self._known[name])
        number = self.evidence.num_runs = self.evidence.num_runs + 1
        program = Program(
            command=side.command, folder=self.work / f"runs{number}", stdin=self.stdin, forced=self._forced,
            cwd=side.cwd, environment=side.environment, telemetry=True)
        return program, ProofVariant(setting=setting)

    def _seconds(self, share: float = 1.0) -> float:
        return max(MIN_SECONDS, share * self.limit.left)

    def _keep(self, name: str, side: str, outcome: RunOutcome, began: float) -> None:
        folder, known = self._sides()[side].cwd, self._known.get(side)
        written = written_text(folder, known, began) if folder is not None and known is not None else ""
        self.evidence.runs[name] = read_run(outcome, written)

    def _outcome(self, run: SideRun) -> str:
        if run.was_stopped:
            return f"stopped at its time limit after {duration(run.seconds)}"
        if run.has_failed:
            return f"failed with status {run.exit_status} after {duration(run.seconds)}"
        return f"took {duration(run.seconds)}"


def _watched_files(side: Side) -> dict[Path, tuple[int, int]]:
    return file_times(side.command, side.cwd)


def read_run(outcome: RunOutcome, written: str = "") -> SideRun:
    """A recording that cannot be read is empty."""
    try:
        recording = read_recording(outcome.recording)
    except TriageError:
        recording = Recording(processes=())
    text = outcome.stdout.read_bytes()[-MAX_OUTPUT:].decode("utf-8", "replace")
    return SideRun(
        recording=recording, numbers=read_numbers(outcome.recording), stdout=text, written=written,
        exit_status=outcome.exit_status,
        was_stopped=outcome.was_stopped, seconds=outcome.seconds, last_lines=outcome.last_lines(6))


def read_recorded(folder: Path) -> SideRun:
    """A recording that the user made."""
    recording = read_recording(folder)
    status = recording.launcher.exit_status
    return SideRun(recording=recording, numbers=read_numbers(folder), exit_status=status or 0)
