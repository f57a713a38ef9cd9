"""Runs a recorded program again to find the operation that made its first NaN or Inf."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchtriage.capture.operations.request import ORIGIN, UNCHANGED
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.errors import CommandError
from torchtriage.launch import environment
from torchtriage.launch.privacy import HIDDEN
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.runs.process import Program, RunOutcome, run_once
from torchtriage.proof.sides import copy_folder
from torchtriage.recording.origins.origin import Origin, OriginState
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.validation import checked

_CODES = ("TT401", "TT402", "TT403")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFault:
    """The first NaN or Inf of a recording: its process, and the steps between which it appeared."""

    process: Process
    first_step: int     # the first in which it may have appeared
    step: int           # in which it was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVariant:
    """A run with a request to follow NaN and Inf."""

    request: Mapping[str, Any]

    def variables(self, forced: Mapping[str, Any], paused: str) -> dict[str, str]:
        return {environment.OPERATIONS: json.dumps(dict(self.request))}


@dataclass(slots=True, kw_only=True)
class Replay:
    """The program of a recording, run in a copy of its working folder."""

    recording: Recording
    work: Path
    limit: TimeLimit
    say: Callable[[str], None]
    num_runs: int = 0

    def find(self, fault: RecordedFault) -> Origin:
        """Run eagerly in the steps of the fault; if that is clean, once more as the program asks."""
        first, last = fault.first_step, fault.step
        watched = f"step {last}" if first == last else f"steps {first} to {last}"
        self.say(f"running the program again; {watched} eagerly, each operation followed")
        origin = self._run(ORIGIN, fault)
        if origin.state == OriginState.CLEAN and origin.was_compiled:
            self.say("no operation gave NaN or Inf; running it once more, compiled as it was")
            unchanged = self._run(UNCHANGED, fault)
            if unchanged.state == OriginState.COMPILED:
                origin = _of_compiled(unchanged, origin, fault)
        return replace(origin, recorded_step=fault.step, pid=fault.process.program.pid)

    def _run(self, mode: str, fault: RecordedFault) -> Origin:
        self.num_runs += 1
        folder, copy = self.work / f"found{self.num_runs}", self.work / f"cwd{self.num_runs}"
        folder.mkdir(parents=True)
        command, cwd = _command(self.recording, fault.process)
        is_copied = cwd is not None and cwd.is_dir() and copy_folder(cwd, copy)
        if is_copied and cwd is not None:
            command = [_moved(word, cwd, copy) for word in command]
        program = Program(command=command, folder=self.work / f"run{self.num_runs}", cwd=copy if is_copied else cwd)
        request = {"mode": mode, "folder": str(folder), "step": fault.step, "first_step": fault.first_step}
        outcome = run_once(program, ReplayVariant(request=request), self.limit.left)
        origin = _read(folder, outcome)
        return _with_paths(origin, copy, cwd) if is_copied and cwd is not None else origin


def _of_compiled(unchanged: Origin, eager: Origin, fault: RecordedFault) -> Origin:
    """The compiler is to blame only if the program repeats itself: the same steps, eager and compiled."""
    if fault.first_step <= (unchanged.step or 0) <= fault.step:
        return replace(unchanged, num_operations=eager.num_operations)
    return replace(unchanged, state=OriginState.UNKNOWN, problem=(
        f"an eager run is finite and a compiled one is not, from step {unchanged.step} instead of {fault.step}: the "
        "program does not repeat itself"))


def recorded_fault(recording: Recording, first_step: int | None) -> RecordedFault:
    """The earliest NaN or Inf of the recording; `first_step` replaces the step from which it is looked for."""
    found = [fault for process in recording.processes if (fault := _fault_of(process)) is not None]
    if not found:
        raise CommandError(
            f"{recording.path} has no NaN or Inf in a loss, gradient or weight; a replay finds the origin of one")
    fault = min(found, key=lambda one: one.step)
    if first_step is None:
        return fault
    if first_step > fault.step:
        raise CommandError(f"--from {first_step} is after step {fault.step}, in which NaN or Inf was seen")
    return replace(fault, first_step=first_step)


def _fault_of(process: Process) -> RecordedFault | None:
    first = process.learning.non_finite_loss
    if first is not None:
        return RecordedFault(process=process, first_step=max(1, first.last_finite or 1), step=first.step)
    bad = [breach for breach in breaches(process) if breach.code in _CODES and breach.step is not None]
    if not bad:
        return None
    step = min(breach.step or 0 for breach in bad)
    # Gradients and weights are looked at in some steps only: the origin is after the look before.
    looks = [_look_before(process, breach.quantity, step) for breach in bad if breach.step == step]
    return RecordedFault(process=process, first_step=max(1, min(looks)), step=step)


def _look_before(process: Process, quantity: str, step: int) -> int:
    series = process.series.get(quantity)
    return max((int(point) for point in series.steps if point < step), default=1) if series is not None else 1


def _command(recording: Recording, process: Process) -> tuple[list[str], Path | None]:
    """The recorded command and its working folder."""
    launcher, program = recording.launcher, process.program
    argv = list(launcher.argv or ())
    if not argv and program.argv and program.executable:
        argv = [program.executable, *program.argv]
    if not argv:
        raise CommandError(f"{recording.path} does not say which command it was; it cannot be run again")
    if any(HIDDEN in word for word in argv):
        raise CommandError(
            f"the command of {recording.path} has a secret, which is not recorded; pass it by an environment variable "
            "and record the program again")
    cwd = launcher.cwd or program.cwd
    return argv, Path(cwd) if cwd else None


def _moved(word: str, cwd: Path, copy: Path) -> str:
    """An absolute path below the working folder, in its copy; the interpreter of an environment there stays."""
    path = Path(word)
    if not path.is_absolute() or not path.is_relative_to(cwd):
        return word
    target = copy / path.relative_to(cwd)
    return str(target) if target.exists() else word


def _read(folder: Path, outcome: RunOutcome) -> Origin:
    """The origin that a process left; a run that found none says how it ended."""
    found: list[Origin] = []
    for path in sorted(folder.glob("origin-*.json")):
        one: Origin = checked(json.loads(path.read_text()), Origin)
        found.append(one)
    if found:
        return min(found, key=lambda one: (one.state == OriginState.CLEAN, one.step or 0))
    if outcome.was_stopped:
        raise CommandError(
            f"the replay did not reach the step in {outcome.seconds:.0f} s; give it more time with --budget")
    ending = outcome.last_lines(3)
    raise CommandError(
        f"the replay ended with status {outcome.exit_status} before the step" + (f": {ending}" if ending else ""))


def _with_paths(origin: Origin, copy: Path, cwd: Path) -> Origin:
    """Paths of the copy are those of the user's folder."""
    changed: dict[str, Any] = {}
    for name in ("operation", "nan_operation"):
        operation = getattr(origin, name)
        if operation is not None and Path(operation.path).is_relative_to(copy):
            path = str(cwd / Path(operation.path).relative_to(copy))
            changed[name] = replace(operation, path=path)
    return replace(origin, **changed)
