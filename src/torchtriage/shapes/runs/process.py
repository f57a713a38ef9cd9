"""Runs the program under a policy, or under several in turns: each a process of its own, with a fresh compile cache and a time limit."""

import ctypes
import json
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
from typing import Any

from torchtriage.capture import launcher_file
from torchtriage.launch import environment, supervise
from torchtriage.recording.store import Writer
from torchtriage.shapes.policies import Policy
from torchtriage.shapes.runs.turns import NEVER, InTurns, Pauses, new_pause_file, take_turns

GRACE_SECONDS = 5.0     # between asking a process to stop and insisting
RECORDING, PAUSED = "run.triage", "paused"
_PR_SET_PDEATHSIG = 1
_INDUCTOR, _TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is run: the command, its input, and what is forced on every run of it."""

    command: Sequence[str]
    folder: Path                                                    # of our own, for caches, recordings and output
    stdin: Path | None = None                                       # given to every run from its beginning
    forced: Mapping[str, Any] = field(default_factory=dict)
    cache: Path | None = None                                       # what the cache of every run begins with; None: it is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one run ended, and where what it left lies."""

    recording: Path
    exit_status: int
    seconds: float
    was_stopped: bool
    stdout: Path
    stderr: Path
    code: frozenset[str] = frozenset()      # the names of what inductor wrote, which are made from what is in it
    cpu_seconds: float = 0.0                # of a run alone
    pauses: Pauses = NEVER                  # of a run in turns

    def last_words(self, num_lines: int = 12) -> str:
        """The end of what it wrote to stderr."""
        return "\n".join(self.stderr.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-num_lines:])


def run_once(program: Program, policy: Policy, limit_seconds: float, extra: Mapping[str, Any] | None = None) -> Outcome:
    """Run alone to the end, or to the time limit; `extra` is forced for this run alone."""
    started, used = time.monotonic(), _cpu_seconds()
    with _started(program, policy, extra or {}) as run:
        was_stopped = _is_over_time(run.child, limit_seconds)
        stop(run.child)
        return run.outcome(was_stopped, time.monotonic() - started, cpu_seconds=_cpu_seconds() - used)


def run_in_turns(program: Program, policies: Sequence[Policy], limit_seconds: float, all_seconds: float = math.inf) -> list[Outcome]:
    """Run side by side, one at a time for an instant: each to its end, to the limit of its own time, or to that of all together."""
    with ExitStack() as stack:
        runs, turns = [], []
        for policy in policies:
            runs.append(stack.enter_context(_started(program, policy, {}, in_turns=True)))
            turns.append(InTurns(runs[-1].child, runs[-1].paused, limit_seconds))
        take_turns(turns, all_seconds)
        for run in runs:
            stop(run.child)
        return [run.outcome(turn.reached_limit, turn.seconds, pauses=turn.pauses) for run, turn in zip(runs, turns, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A process that was started, and the folder with all that is its own."""

    folder: Path
    child: "subprocess.Popen[bytes]"
    launcher: Writer
    shared_cache: Path | None

    @property
    def paused(self) -> Path:
        return self.folder / PAUSED

    def outcome(self, was_stopped: bool, seconds: float, **more: Any) -> Outcome:
        """Of a process that has ended."""
        number = self.child.returncode
        status = number if number >= 0 else 128 - number
        launcher_file.end(self.launcher, status)
        return Outcome(
            recording=self.folder / RECORDING, exit_status=status, seconds=seconds, was_stopped=was_stopped, stdout=self.folder / "stdout",
            stderr=self.folder / "stderr", code=_written_code(self.folder / "cache" / "inductor", self.shared_cache), **more,
        )


@contextmanager
def _started(program: Program, policy: Policy, extra: Mapping[str, Any], *, in_turns: bool = False) -> Iterator[_Run]:
    """The process of a run, with its own cache; on the way out neither is left."""
    folder = program.folder / f"run{len(list(program.folder.glob('run*'))) + 1}"
    folder.mkdir(parents=True)
    recording, cache = folder / RECORDING, folder / "cache"
    if in_turns:
        extra = {**extra, "paused": str(new_pause_file(folder / PAUSED))}
    run_id = f"{time.time_ns():x}-{os.getpid()}"
    launcher = launcher_file.begin(recording, run_id, program.command)
    env = supervise.observed_environment(os.environ, str(recording), run_id, measure=False, telemetry=False)
    env.update({_INDUCTOR: str(cache / "inductor"), _TRITON: str(cache / "triton")})
    if program.cache is not None:
        shutil.copytree(program.cache, cache / "inductor")
    env.update(policy.environment)
    env[environment.POLICY] = json.dumps({"name": policy.name, **program.forced, **policy.forced, **extra})
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, cache, ignore_errors=True)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err, open(program.stdin or os.devnull, "rb") as given:
            # A session of its own: Ctrl-C is ours to handle, and whatever the program starts can be stopped with it.
            child = subprocess.Popen(list(program.command), env=env, stdin=given, stdout=out, stderr=err, start_new_session=True,
                                     preexec_fn=_before_it_starts())
        stack.callback(stop, child)
        yield _Run(folder=folder, child=child, launcher=launcher, shared_cache=program.cache)


def _before_it_starts() -> Callable[[], None]:
    """What a child calls: it hears our SIGINT even if we ignore it (`nohup ... &`), and where a system can do that ends with us."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


def _cpu_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _written_code(cache: Path, before: Path | None) -> frozenset[str]:
    """A path within the code differs from run to run and makes another name: what has the same names is the same code."""
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
    """Ask the process and what it started to end, then insist; nothing to do if it has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, number)
            os.killpg(child.pid, signal.SIGCONT)    # one that stands still hears nothing else but the last
            child.wait(GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
