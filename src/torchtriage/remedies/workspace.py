"""The files of a project that edits may change, compared with those of the recording."""

import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchtriage.diagnosis.places import owner_of
from torchtriage.files import read_regular, replace_file
from torchtriage.findings.model import Change, OwnerKind
from torchtriage.recording.facts import ProgramFacts
from torchtriage.recording.recording import Recording, Source
from torchtriage.recording.sources import MAX_LINE, is_installed
from torchtriage.remedies.rewriting import rewritten
from torchtriage.remedies.tree import UneditableError

MAX_BYTES = 10_000_000      # of a source file


class Workspace:
    """The files below a folder, checked against the source that a recording kept of them."""

    def __init__(self, root: Path, recording: Recording) -> None:
        self.root = Path(os.path.realpath(root))
        self._recorded: dict[str, list[Source]] = defaultdict(list)
        for process in recording.processes:
            for (path, _), source in process.sources.items():
                self._recorded[path].append(source)
        self._contents: dict[str, bytes] = {}

    def content(self, path: str) -> bytes:
        """The content of a file that may be edited; raises UneditableError with the reason if it may not."""
        if path not in self._contents:
            self._contents[path] = self._checked(path)
        return self._contents[path]

    def _checked(self, path: str) -> bytes:
        real = Path(os.path.realpath(path))
        if is_installed(path) or is_installed(str(real)):
            raise UneditableError(f"{path} belongs to an installed package")
        if owner_of(path, ProgramFacts()).kind is not OwnerKind.YOU or path.startswith("<") or not os.path.isabs(path):
            raise UneditableError(f"{path} is not a file of the project")
        if not real.is_relative_to(self.root):
            raise UneditableError(f"{path} is outside of the project {self.root}; run fix in its folder")
        try:
            content = read_regular(real, MAX_BYTES)
        except FileNotFoundError:
            raise UneditableError(f"{path} does not exist any more, or was recorded on another machine") from None
        except OSError as error:
            raise UneditableError(f"{path} cannot be read: {error.strerror}") from error
        self._check_unchanged(path, content)
        return content

    def _check_unchanged(self, path: str, content: bytes) -> None:
        lines = [line.rstrip("\n") for line in _decoded(content).splitlines()]
        for source in self._recorded.get(path, ()):
            for number, text in enumerate(source.lines, source.first_line):
                now = lines[number - 1][:MAX_LINE] if number <= len(lines) else ""
                if now.rstrip() != text.rstrip():
                    raise UneditableError(
                        f"{path} changed since the recording: line {number} reads {now.strip()[:60]!r}, "
                        f"and was recorded as {text.strip()[:60]!r}; record again"
                    )

    def edited(self, changes: Sequence[Change]) -> dict[str, bytes]:
        """The new content of each file that these changes concern."""
        by_path: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_path[change.path].append(change)
        edited = {}
        for path, own in by_path.items():
            content = self.content(path)
            try:
                edited[path] = rewritten(content, own)
            except UneditableError as error:
                raise UneditableError(f"{os.path.basename(path)}: {error}") from error
        return edited

    def shown(self, path: str) -> str:
        """The path of a file from the root of the project."""
        return Path(os.path.realpath(path)).relative_to(self.root).as_posix()


def _decoded(content: bytes) -> str:
    """The text of a source file as Python reads it; what is not valid becomes a replacement character."""
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError:
        encoding = "utf-8"
    return content.decode(encoding, "replace")


def project_root(folder: Path) -> Path:
    """The root of the git repository that holds a folder; the folder itself if there is none."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    return Path(top.strip()) if top else folder


def uncommitted(path: str) -> str:
    """Why a file has no committed version to go back to; empty if it has."""
    folder, name = os.path.split(os.path.realpath(path))
    status = _git(Path(folder), "status", "--porcelain", "--ignored", "--", name)
    if status is None:
        return "is not in a git repository"
    if status.startswith(("??", "!!")):
        return "is not committed to git"
    return "has uncommitted changes" if status.strip() else ""


def _git(folder: Path, *words: str) -> str | None:
    """What a git command prints; None if it fails, or if git is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, errors="surrogateescape", timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def check_writable(paths: Sequence[str], *, force: bool) -> None:
    """Raise UneditableError, before anything is written, if one of these files must not be written."""
    problems = []
    for path in paths:
        if not os.access(path, os.W_OK):
            problems.append(f"{path} is read-only")
        elif not force and (why := uncommitted(path)):
            problems.append(f"{path} {why}, so the edit could not be undone; commit it, or write with --force")
    if problems:
        raise UneditableError("nothing was written: " + "; ".join(problems))


def write(files: Mapping[str, bytes]) -> None:
    """Replace the content of files, each as a whole."""
    for path, content in files.items():
        try:
            replace_file(path, content)
        except OSError as error:
            raise UneditableError(f"cannot write {path}: {error.strerror}") from error
