"""The surroundings of the runs: the stdin they share, the files they write, the initial cache of their compiler."""

import itertools
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from torchtriage.capture.torch_private.shapes import CHECK_PROCESSOR
from torchtriage.launch import environment

PATIENCE_SECONDS = 2.0      # for the first byte on a pipe: an idle pipe must not block the study
SILENT = (f"stdin is a pipe that stayed silent for {PATIENCE_SECONDS:.0f} s, so the runs got no input; "
          "give the input from a file: < input.txt")
MAX_FILES = 20_000          # below the working folder, that are checked for changes
TEXT_SUFFIXES = frozenset((".json", ".jsonl", ".csv", ".tsv", ".txt", ".log", ".md", ".yaml", ".yml"))
MAX_TEXT, MAX_LINES = 1 << 20, 1000     # bytes of a text file, lines of its end
TIMEOUT_SECONDS = 300       # of a probe: importing torch from a cold disk takes a minute
_PIPES = (stat.S_ISFIFO, stat.S_ISSOCK)


def kept_stdin(target: Path) -> tuple[Path | None, str]:
    """(a copy of stdin, or None if it is a terminal or empty; a note if it is a pipe that stays silent)."""
    try:
        source = sys.stdin.buffer
        mode = os.fstat(source.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return None, ""     # closed, or replaced by an object that is not a file
    is_pipe = any(kind(mode) for kind in _PIPES)
    if not is_pipe and not stat.S_ISREG(mode):
        return None, ""
    if is_pipe and not select.select([source], [], [], PATIENCE_SECONDS)[0]:
        return None, SILENT
    with target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return (target if target.stat().st_size else None), ""


def file_times(words: Sequence[str], cwd: Path | None = None) -> dict[Path, tuple[int, int]]:
    """The modification time and size of the files below the working folder of the runs and on the command line."""
    times: dict[Path, tuple[int, int]] = {}
    own_output, folder = _own_output(), (cwd or Path.cwd()).absolute()
    for path in [*itertools.islice(_files_below(folder), MAX_FILES), *(folder / word for word in words)]:
        try:
            info = path.stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(info.st_mode) and (info.st_dev, info.st_ino) not in own_output:
            times[path] = (info.st_mtime_ns, info.st_size)
    return times


def _files_below(folder: Path) -> Iterator[Path]:
    """Without hidden folders, caches and recordings, to which no program writes its results."""
    for parent, folders, files in os.walk(folder):
        visible = [name for name in folders if not name.startswith((".", "__pycache__"))]
        folders[:] = sorted(name for name in visible if not name.endswith(".triage"))
        yield from (Path(parent, name) for name in sorted(files))


def _own_output() -> set[tuple[int, int]]:
    """The files to which our own stdout and stderr are redirected, by device and inode."""
    files = set()
    for descriptor in (1, 2):
        try:
            info = os.fstat(descriptor)
        except OSError:
            continue    # closed
        files.add((info.st_dev, info.st_ino))
    return files


def written_files(before: Mapping[Path, tuple[int, int]], after: Mapping[Path, tuple[int, int]]) -> list[str]:
    """The names of the files that are new or have changed."""
    return sorted(os.path.relpath(path) for path, times in after.items() if before.get(path) != times)


def paths_below(folder: Path) -> frozenset[Path]:
    """All files and folders, as they are before a run."""
    return frozenset(
        Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files))


def remove_new(folder: Path, known: Collection[Path]) -> None:
    """Remove what a run made below its copy of a folder, so that the next one does not find it."""
    for parent, folders, files in os.walk(folder, topdown=False):
        if Path(parent).name != "__pycache__":
            for path in (Path(parent, name) for name in files):
                if path not in known:
                    path.unlink(missing_ok=True)
        for path in (Path(parent, name) for name in folders):
            if path not in known and path.name != "__pycache__":
                shutil.rmtree(path, ignore_errors=True) if not path.is_symlink() else path.unlink()


def written_text(folder: Path, known: Collection[Path], since: float) -> str:
    """The lines of the text files that a run wrote, each with the name of its file; `since` is when the run began."""
    lines = []
    paths = [path for path in _files_below(folder) if path.suffix in TEXT_SUFFIXES]
    for path in paths[:MAX_FILES]:
        try:
            info = path.stat()
            if info.st_size <= MAX_TEXT and (path not in known or info.st_mtime >= since):
                text = path.read_text(encoding="utf-8", errors="replace")
                lines += [f"{path.name}: {line}" for line in text.splitlines()[-MAX_LINES:]]
        except OSError:
            continue
    return "\n".join(lines)


def checked_cache(folder: Path, python: str) -> Path | None:
    """An inductor cache that contains only inductor's check of the processor, so that no run repeats the check.

    None if this torch has no such check.
    """
    cache = folder / "checked"
    env = unobserved_environment() | {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    try:
        done = subprocess.run([python, "-c", CHECK_PROCESSOR], env=env, capture_output=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return cache if done.returncode == 0 and cache.is_dir() else None


def unobserved_environment() -> dict[str, str]:
    ours = (environment.FOLDER, environment.POLICY, environment.PROOF)
    return {name: value for name, value in os.environ.items() if name not in ours}
