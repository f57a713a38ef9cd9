"""What the program reads and writes besides torch: its stdin, given to every run alike, and the files that each run writes again."""

import functools
import itertools
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchtriage.capture.torch_private.shapes import CHECK_PROCESSOR
from torchtriage.launch import environment
from torchtriage.shapes.policies import SOURCES

PATIENCE_SECONDS = 2.0      # for the first byte on a pipe: a pipe that nobody writes to must not hold us up
SILENT = f"stdin is a pipe that stayed silent for {PATIENCE_SECONDS:.0f} s, so the runs got none; give the input from a file: < input.txt"
MAX_FILES = 20_000          # below the working folder, that are looked at
_PIPES = (stat.S_ISFIFO, stat.S_ISSOCK)


def kept_stdin(target: Path) -> tuple[Path | None, str]:
    """A copy of what is on stdin, or None if it is a terminal or nothing; and a note if it is a pipe that stays silent."""
    try:
        source = sys.stdin.buffer
        mode = os.fstat(source.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return None, ""     # closed, or replaced by something that is no file
    is_pipe = any(kind(mode) for kind in _PIPES)
    if not is_pipe and not stat.S_ISREG(mode):
        return None, ""
    if is_pipe and not select.select([source], [], [], PATIENCE_SECONDS)[0]:
        return None, SILENT
    with target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return (target if target.stat().st_size else None), ""


def file_times(words: Sequence[str]) -> dict[Path, tuple[int, int]]:
    """When each file was written, and its size: those below the working folder, and those that the command line names."""
    found: dict[Path, tuple[int, int]] = {}
    ours = _own_output()
    for path in [*itertools.islice(_files_below(Path.cwd()), MAX_FILES), *map(Path, words)]:
        try:
            info = path.absolute().stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(info.st_mode) and (info.st_dev, info.st_ino) not in ours:
            found[path.absolute()] = (info.st_mtime_ns, info.st_size)
    return found


def _files_below(folder: Path) -> Iterator[Path]:
    """Without those in folders that no program writes its results to."""
    for at, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__")) and not name.endswith(".triage"))
        yield from (Path(at, name) for name in sorted(files))


def _own_output() -> set[tuple[int, int]]:
    """The files that our own stdout and stderr go to, by device and number."""
    found = set()
    for descriptor in (1, 2):
        try:
            info = os.fstat(descriptor)
        except OSError:
            continue    # closed
        found.add((info.st_dev, info.st_ino))
    return found


def written_files(before: Mapping[Path, tuple[int, int]], after: Mapping[Path, tuple[int, int]]) -> list[str]:
    """The names of the files that are new or have changed."""
    return sorted(os.path.relpath(path) for path, seen in after.items() if before.get(path) != seen)


_TIMEOUT_SECONDS = 300      # importing torch from a cold disk takes a minute
_PROGRAM = r"""
import torch
num_graphs = 0
def count(graph, inputs):
    global num_graphs
    num_graphs += 1
    return graph.forward
compiled = torch.compile(lambda x: x + 1, backend=count)
compiled(torch.ones(5, 3)), compiled(torch.ones(7, 3))
print(num_graphs)
"""


@functools.cache
def takes_dimensions(torch_version: str) -> bool:
    """Whether the first dimension, marked alone, spares the second graph; asked once for a version of torch."""
    env = {name: value for name, value in os.environ.items() if name not in (environment.FOLDER, environment.POLICY)}
    env[SOURCES] = r"L\['x'\]$:0"
    try:
        done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == "1"


_TIMEOUT_SECONDS = 300


def checked_cache(folder: Path, python: str) -> Path | None:
    """A cache of inductor's that holds this check and nothing else; None if this torch has no such check, and each run makes its own."""
    cache = folder / "checked"
    env = {name: value for name, value in os.environ.items() if name not in (environment.FOLDER, environment.POLICY)}
    env["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    try:
        done = subprocess.run([python, "-c", CHECK_PROCESSOR], env=env, capture_output=True, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return cache if done.returncode == 0 and cache.is_dir() else None
