"""Runs the program once under one policy: a process of its own, a fresh compile cache, a time limit."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.capture import launcher_file
from torchtriage.launch import environment, supervise
from torchtriage.shapes.policies import Policy

GRACE_SECONDS = 5.0     # between asking a process to stop and insisting
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

    def last_words(self, num_lines: int = 12) -> str:
        """The end of what it wrote to stderr."""
        return "\n".join(self.stderr.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-num_lines:])


def run_once(program: Program, policy: Policy, limit_seconds: float, extra: Mapping[str, Any] | None = None) -> Outcome:
    """Run to the end, or to the time limit; `extra` is forced for this run alone."""
    folder = program.folder / f"run{len(list(program.folder.glob('run*'))) + 1}"
    folder.mkdir(parents=True)
    recording, cache = folder / "run.triage", folder / "cache"
    run_id = f"{time.time_ns():x}-{os.getpid()}"
    launcher = launcher_file.begin(recording, run_id, program.command)
    env = supervise.observed_environment(os.environ, str(recording), run_id, measure=False, telemetry=False)
    env.update({_INDUCTOR: str(cache / "inductor"), _TRITON: str(cache / "triton")})
    if program.cache is not None:
        shutil.copytree(program.cache, cache / "inductor")
    env.update(policy.environment)
    env[environment.POLICY] = json.dumps({"name": policy.name, **program.forced, **policy.forced, **(extra or {})})
    started = time.monotonic()
    try:
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err, open(program.stdin or os.devnull, "rb") as given:
            # A session of its own: Ctrl-C is ours to handle, and whatever the program starts can be stopped with it.
            child = subprocess.Popen(list(program.command), env=env, stdin=given, stdout=out, stderr=err, start_new_session=True)
        status, was_stopped = _wait(child, limit_seconds)
        code = _written_code(cache / "inductor", program.cache)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    launcher_file.end(launcher, status)
    return Outcome(
        recording=recording, exit_status=status, seconds=time.monotonic() - started, was_stopped=was_stopped,
        stdout=folder / "stdout", stderr=folder / "stderr", code=code,
    )


def _written_code(cache: Path, before: Path | None) -> frozenset[str]:
    """A path within the code differs from run to run and makes another name: what has the same names is the same code."""
    def names(folder: Path) -> set[str]:
        return {path.name for path in folder.rglob("*") if path.suffix in (".py", ".cpp")}

    return frozenset(names(cache) - (names(before) if before is not None else set()))


def _wait(child: "subprocess.Popen[bytes]", limit_seconds: float) -> tuple[int, bool]:
    """(exit status, 128 + N if signal N ended it; whether we stopped it)."""
    was_stopped = False
    try:
        child.wait(max(0.0, limit_seconds))
    except subprocess.TimeoutExpired:
        was_stopped = True
    finally:
        stop(child)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode, was_stopped


def stop(child: "subprocess.Popen[bytes]") -> None:
    """Ask the process and what it started to end, then insist; nothing to do if it has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, number)
            child.wait(GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
