"""Runs small programs under observation, in a separate process as a user would."""

import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]
TORCHTRIAGE = [sys.executable, "-m", "torchtriage"]


def torch_version() -> tuple[int, ...]:
    """The version of the torch that the programs import, as (2, 13); torch is not imported for it."""
    return tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])

# For programs that are killed: waits until so many graph breaks are on the disk, however busy the machine is.
WAIT_FOR_BREAKS = """
import glob, os, sqlite3, time

def wait_for_breaks(number):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for path in glob.glob(os.path.join(os.environ["TORCHTRIAGE"], "*.sqlite")):
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
            try:
                if db.execute("select count(*) from events where kind = 'graph_break'").fetchone()[0] >= number:
                    return
            except sqlite3.OperationalError:
                pass        # the file has just been made
            finally:
                db.close()
        time.sleep(0.02)
"""


@dataclass
class Outcome:
    """The exit status and output of an observed program, and the report of its recording."""

    status: int
    stdout: str
    stderr: str
    folder: Path

    @cached_property
    def report(self) -> dict[str, Any]:
        done = subprocess.run([*TORCHTRIAGE, "report", str(self.folder), "--format", "json", "--events"],
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def codes(self) -> list[str]:
        return [f["code"] for f in self.report["findings"]]

    def finding(self, code: str) -> dict[str, Any]:
        return next(f for f in self.report["findings"] if f["code"] == code)


def write(folder: Path, source: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source).lstrip("\n"))
    return path


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    ours = ("TORCHTRIAGE", "TORCH_LOGS", "TORCH_TRACE", "NO_COLOR", "FORCE_COLOR")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return clean | {"OMP_NUM_THREADS": "1"} | dict(extra or {})


def observe(folder: Path, source: str, *args: str, flags: Sequence[str] = (), env: Mapping[str, str] | None = None,
            stdin: str | None = None) -> Outcome:
    """`torchtriage run -o out.triage FLAGS train.py ARGS` in `folder`."""
    script = write(folder, source)
    out = folder / "out.triage"
    done = command(folder, "run", "-o", str(out), *flags, script.name, *args, env=env, stdin=stdin)
    return Outcome(done.returncode, done.stdout, done.stderr, out)


def command(folder: Path, *words: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Done:
    """`torchtriage WORDS` in `folder`."""
    return subprocess.run([*TORCHTRIAGE, *words], cwd=folder, env=environment(env), input=stdin,
                          capture_output=True, text=True, timeout=600)


def plain(folder: Path, script: Path, *args: str, env: Mapping[str, str] | None = None) -> Done:
    """Run the program unobserved."""
    return subprocess.run([sys.executable, script.name, *args], cwd=folder, env=environment(env),
                          capture_output=True, text=True, timeout=600)
