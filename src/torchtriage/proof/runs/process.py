"""Runs the program in one variant, or in several in turns.

Each run is a separate process with a fresh compile cache and a time limit.
"""

import ctypes
import math
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torchtriage.capture import launcher_file
from torchtriage.launch import supervise
from torchtriage.proof.runs.turns import NEVER, InTurns, Pauses, new_pause_file, take_turns
from torchtriage.recording.store import Writer

POLL_SECONDS = 0.02
GRACE_SECONDS = 5.0     # between one signal to stop and the next, stronger one
RECORDING, PAUSED = "run.triage", "paused"
_PR_SET_PDEATHSIG = 1
_INDUCTOR, _TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of a study: its command, its input, and the fields that are forced on every run."""

    command: Sequence[str]
    folder: Path                                                # temporary, for caches, recordings and output
    stdin: Path | None = None                                   # each run reads it from the beginning
    forced: Mapping[str, Any] = field(default_factory=dict)     # fields of the variant's setting
    cache: Path | None = None                                   # the initial cache of every run; None: empty
    cwd: Path | None = None                                     # None: the working folder
    environment: Mapping[str, str] = field(default_factory=dict)    # variables of every run
    telemetry: bool = False                                     # record the learning


class Variant(Protocol):
    """What distinguishes a run from the other runs of the same program."""

    def variables(self, forced: Mapping[str, Any], paused: str) -> Mapping[str, str]:
        """The environment variables of a run; `paused` is the file with its paused seconds if it takes turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The result of one run: how it ended, and the files it left."""

    recording: Path
    exit_status: int
    seconds: float
    was_stopped: bool
    stdout: Path
    stderr: Path
    code: frozenset[str] = frozenset()      # the names of the files inductor wrote, which are hashes of their content
    cpu_seconds: float = 0.0                # only of a run that was alone
    pauses: Pauses = NEVER                  # only of a run in turns

    def last_lines(self, num_lines: int = 12) -> str:
        """The end of its stderr."""
        lines = self.stderr.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
        return "\n".join(lines[-num_lines:])


def run_once(
    program: Program, variant: Variant, limit_seconds: float, forced: Mapping[str, Any] | None = None,
) -> RunOutcome:
    """Run alone until the end or the time limit; `forced` are fields of the variant's setting for this run only."""
    started, used = time.monotonic(), _cpu_seconds()
    with _started(program, variant, forced or {}) as run:
        was_stopped = _is_over_time(run.child, limit_seconds)
        stop(run.child)
        return run.outcome(was_stopped, time.monotonic() - started, cpu_seconds=_cpu_seconds() - used)


def run_in_turns(
    program: Program, variants: Sequence[Variant], limit_seconds: float, all_seconds: float = math.inf,
) -> list[RunOutcome]:
    """Run several variants in short turns, one process active at a time.

    Each run lasts until its end, its own limit of active seconds, or the limit of all runs together.
    """
    return run_jobs_in_turns([(program, variant) for variant in variants], limit_seconds, all_seconds)


Job = tuple[Program, Variant]


def run_jobs_in_turns(
    jobs: Sequence[Job], limit_seconds: float, all_seconds: float = math.inf,
) -> list[RunOutcome]:
    """The same for runs of different programs."""
    with ExitStack() as stack:
        runs, turns = [], []
        for program, variant in jobs:
            runs.append(stack.enter_context(_started(program, variant, {}, in_turns=True)))
            turns.append(InTurns(runs[-1].child, runs[-1].paused, limit_seconds))
        take_turns(turns, all_seconds)
        for run in runs:
            stop(run.child)
        return [
            run.outcome(turn.reached_limit, turn.seconds, pauses=turn.pauses)
            for run, turn in zip(runs, turns, strict=True)
        ]


def run_at_once(jobs: Sequence[Job], limit_seconds: float, num_at_once: int) -> list[RunOutcome]:
    """Run the jobs beside each other, a few at a time, where their times do not matter."""
    outcomes: dict[int, RunOutcome] = {}
    with ExitStack() as stack:
        waiting, running = list(enumerate(jobs)), dict[int, tuple[_Run, float]]()
        while waiting or running:
            while waiting and len(running) < num_at_once:
                number, (program, variant) = waiting.pop(0)
                running[number] = stack.enter_context(_started(program, variant, {})), time.monotonic()
            for number, (run, began) in list(running.items()):
                seconds = time.monotonic() - began
                is_over = seconds >= limit_seconds
                if run.child.poll() is None and not is_over:
                    continue
                stop(run.child)
                outcomes[number] = run.outcome(is_over, seconds)
                del running[number]
            time.sleep(POLL_SECONDS)
    return [outcomes[number] for number in range(len(jobs))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A running process and the folder with its files."""

    folder: Path
    child: "subprocess.Popen[bytes]"
    launcher: Writer
    shared_cache: Path | None

    @property
    def paused(self) -> Path:
        return self.folder / PAUSED

    def outcome(self, was_stopped: bool, seconds: float, **more: Any) -> RunOutcome:
        """The outcome of a process that has ended."""
        number = self.child.returncode
        status = number if number >= 0 else 128 - number
        launcher_file.end(self.launcher, status)
        return RunOutcome(
            recording=self.folder / RECORDING, exit_status=status, seconds=seconds, was_stopped=was_stopped,
            stdout=self.folder / "stdout", stderr=self.folder / "stderr",
            code=_generated_code(self.folder / "cache" / "inductor", self.shared_cache), **more,
        )


@contextmanager
def _started(
    program: Program, variant: Variant, forced: Mapping[str, Any], *, in_turns: bool = False,
) -> Iterator[_Run]:
    """The process of a run, with its own cache; both are removed on exit."""
    folder = program.folder / f"run{len(list(program.folder.glob('run*'))) + 1}"
    folder.mkdir(parents=True)
    recording, cache = folder / RECORDING, folder / "cache"
    paused = str(new_pause_file(folder / PAUSED)) if in_turns else ""
    run_id = f"{time.time_ns():x}-{os.getpid()}"
    launcher = launcher_file.begin(recording, run_id, program.command)
    env = supervise.observed_environment(os.environ, str(recording), run_id, measure=False, telemetry=program.telemetry)
    env.update({_INDUCTOR: str(cache / "inductor"), _TRITON: str(cache / "triton")})
    if program.cache is not None:
        shutil.copytree(program.cache, cache / "inductor")
    env.update(program.environment)
    env.update(variant.variables({**program.forced, **forced}, paused))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, cache, ignore_errors=True)
        with (
            (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr,
            open(program.stdin or os.devnull, "rb") as stdin,
        ):
            # In its own session: this process handles Ctrl-C, and can stop every process that the program starts.
            child = subprocess.Popen(
                list(program.command), env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True,
                preexec_fn=_child_setup(), cwd=program.cwd,
            )
        stack.callback(stop, child)
        yield _Run(folder=folder, child=child, launcher=launcher, shared_cache=program.cache)


def _child_setup() -> Callable[[], None]:
    """What a child calls before it starts the program.

    It reacts to our SIGINT even if this process ignores SIGINT (`nohup ... &`), and on Linux it dies with this process.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


def _cpu_seconds() -> float:
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _generated_code(cache: Path, before: Path | None) -> frozenset[str]:
    """The names of the generated files that were not in the initial cache.

    A name is a hash of the content, so equal names mean equal code. Equal code may still have different names, because
    a path within it differs from run to run.
    """
    def names(folder: Path) -> set[str]:
        return {path.name for path in folder.rglob("*") if path.suffix in (".py", ".cpp")}

    return frozenset(names(cache) - (names(before) if before is not None else set()))


def _is_over_time(child: "subprocess.Popen[bytes]", limit_seconds: float) -> bool:
    try:
        child.wait(max(0.0, limit_seconds))
    except subprocess.TimeoutExpired:
        return True
    return False


def stop(child: "subprocess.Popen[bytes]") -> None:
    """Stop the process and its children with ever stronger signals; does nothing if it has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, number)
            os.killpg(child.pid, signal.SIGCONT)    # a paused process receives only SIGKILL
            child.wait(GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
