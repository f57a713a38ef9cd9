"""The two sides of a comparison: a command each, in a copy of its folder, so that it overwrites no file."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.recording.reader import is_recording
from torchtriage.text import path_from_here

MAX_FILES, MAX_BYTES = 5_000, 200 << 20     # of a folder that is copied; a larger one is used where it is
_SKIPPED = ("__pycache__", "node_modules", "venv", "site-packages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side: what is run, and where."""

    label: str                          # as the user named it
    command: Sequence[str] = ()
    cwd: Path | None = None
    eager: bool = False                 # run what is compiled eager, as BEFORE of `--eager`
    recording: Path | None = None       # instead of a command
    environment: Mapping[str, str] = field(default_factory=dict)
    is_copy: bool = False               # `cwd` and the script are copies

    @property
    def script(self) -> str:
        return next((Path(word).name for word in self.command[1:] if word.endswith(".py")), "")


def script_sides(before: str, after: str, arguments: Sequence[str], work: Path, python: str = "") -> tuple[Side, Side]:
    """Two scripts; AFTER runs under the file name of BEFORE, so that the places of their findings are the same."""
    for name in (before, after):
        check_script(name)
    name = Path(before).name
    one = _script_side(before, name, arguments, work / "before", python)
    other = _script_side(after, name, arguments, work / "after", python)
    return one, other


def python_sides(pythons: Sequence[str], script: str, arguments: Sequence[str], work: Path) -> tuple[Side, Side]:
    """One script under two interpreters."""
    check_script(script)
    for python in pythons:
        if shutil.which(python) is None:
            raise CommandError(f"no interpreter at {python}; give --python the path of one, twice")
        probe = subprocess.run(
            [python, "-c", "import torchtriage, torch"], capture_output=True, text=True, cwd=work, check=False)
        if probe.returncode:
            problem = probe.stderr.strip().splitlines()[-1:] or ["it cannot be started"]
            raise CommandError(f"{python} cannot be observed: {problem[0]}; install torchtriage and torch into it")
    folders = (work / "before", work / "after")
    sides = [
        _script_side(script, Path(script).name, arguments, folder, shutil.which(python) or python)
        for folder, python in zip(folders, pythons, strict=True)
    ]
    return replace(sides[0], label=pythons[0]), replace(sides[1], label=pythons[1])


def eager_sides(script: str, arguments: Sequence[str], work: Path) -> tuple[Side, Side]:
    """One script, eager and compiled."""
    one, other = script_sides(script, script, arguments, work)
    return replace(one, label=f"{script} (eager)", eager=True), replace(other, label=f"{script} (compiled)")


def command_sides(before: str, after: str, work: Path) -> tuple[Side, Side]:
    """Two commands, each in its own copy of the working folder."""
    sides = []
    for text, folder in ((before, work / "before"), (after, work / "after")):
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise CommandError(f"cannot split the command {text!r}: {error}") from error
        if not words or shutil.which(words[0]) is None:
            raise CommandError(f"no program {words[0] if words else text!r}; give a command such as "
                               "--before 'python train.py'")
        copied = copy_folder(Path.cwd(), folder / "cwd")
        cwd = folder / "cwd" if copied else None
        sides.append(Side(label=text, command=words, cwd=cwd, is_copy=copied))
    return sides[0], sides[1]


def recording_sides(before: str, after: str) -> tuple[Side, Side]:
    return Side(label=before, recording=Path(before)), Side(label=after, recording=Path(after))


def are_recordings(before: str, after: str) -> bool:
    kinds = [is_recording(Path(name)) for name in (before, after)]
    if any(kinds) and not all(kinds):
        name = (before, after)[kinds.index(False)]
        raise CommandError(f"{name} is not a recording, but the other side is; give two scripts or two recordings")
    return all(kinds)


def check_script(name: str) -> None:
    if name.rstrip("/").endswith(".triage"):
        raise CommandError(f"no recording at {name}; make one with: torchtriage run -o {name} train.py")
    if not Path(name).is_file():
        raise CommandError(f"no script at {name}; give a Python script, or a command with --before and --after")


def _script_side(path: str, name: str, arguments: Sequence[str], folder: Path, python: str = "") -> Side:
    """The script in copies of its folder and of the working folder; where these are large, in place."""
    script, cwd = Path(path).resolve(), Path.cwd()
    is_below = script.is_relative_to(cwd.resolve())
    copied = copy_folder(cwd, folder / "cwd")
    if is_below and copied:
        target: Path | None = folder / "cwd" / script.relative_to(cwd.resolve())
    elif copy_folder(script.parent, folder / "script"):
        target = folder / "script" / script.name
    else:
        target = None
    if target is not None:
        shutil.copy2(script, target)        # also of a folder whose files are not copied, as of a hidden one
        if target.name != name and not _imports(script, Path(name).stem):
            target = target.replace(target.with_name(name))
    command = [python or sys.executable, str(target or script), *arguments]
    return Side(label=path_from_here(path), command=command, cwd=folder / "cwd" if copied else None,
                is_copy=copied and target is not None)


def _imports(script: Path, module: str) -> bool:
    text = script.read_text(encoding="utf-8", errors="replace")
    return re.search(rf"^\s*(?:import|from)\s+{re.escape(module)}\b", text, re.MULTILINE) is not None


def copy_folder(source: Path, target: Path) -> bool:
    """Copy the files of a folder, without hidden folders, caches and recordings; False if there are too many."""
    files = list[tuple[Path, Path]]()
    num_bytes = 0
    for parent, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if _is_copied(Path(parent, name)))
        for name in names:
            path = Path(parent, name)
            try:
                num_bytes += path.stat().st_size if path.is_file() else 0
            except OSError:
                continue
            files.append((path, target / path.relative_to(source)))
            if len(files) > MAX_FILES or num_bytes > MAX_BYTES:
                return False
    target.mkdir(parents=True, exist_ok=True)
    for path, copy in files:
        if path.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    return True


def _is_copied(folder: Path) -> bool:
    name = folder.name
    is_environment = (folder / "pyvenv.cfg").exists()
    return not (name.startswith(".") or name.endswith(".triage") or name in _SKIPPED or is_environment)


@dataclass(slots=True)
class Worktrees:
    """Temporary git worktrees of revisions, which are removed at the end; the user's tree is not touched."""

    work: Path
    say: Callable[[str], None]
    _made: list[Path] = field(default_factory=list)

    def sides(self, revisions: Sequence[str], words: Sequence[str]) -> tuple[Side, Side]:
        """The same script of two revisions; `.` is the working tree."""
        if not words:
            raise CommandError("no script; try: torchtriage verify --rev HEAD~1 --rev . train.py")
        top = Path(git("rev-parse", "--show-toplevel", problem="this is not a git repository").strip())
        below = Path.cwd().resolve().relative_to(top.resolve())
        sides = []
        for number, revision in enumerate(revisions):
            tree = self._tree(top, revision, self.work / ("before", "after")[number])
            script = tree / below / words[0]
            if not script.is_file():
                raise CommandError(f"{revision} has no {words[0]}; give a script that both revisions have")
            command = [sys.executable, str(script), *words[1:]]
            sides.append(Side(label=f"{revision} {words[0]}", command=command, cwd=tree / below, is_copy=True))
        return sides[0], sides[1]

    def _tree(self, top: Path, revision: str, folder: Path) -> Path:
        base = "HEAD" if revision == "." else revision
        name = git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}", problem=(
            f"{revision} is not a revision of this repository; see: git log --oneline")).strip()
        git("worktree", "add", "--detach", "--quiet", str(folder), name, problem=f"cannot check out {revision}")
        self._made.append(folder)
        if revision == ".":
            _take_over_changes(top, folder)
        return folder

    def remove(self) -> None:
        for folder in self._made:
            subprocess.run(["git", "worktree", "remove", "--force", str(folder)], capture_output=True, check=False)
        self._made.clear()


def _take_over_changes(top: Path, folder: Path) -> None:
    """The files of the working tree that differ from HEAD or are not in it, without those that git ignores."""
    changed = git("-C", str(top), "diff", "--name-only", "-z", "HEAD", problem="cannot read the working tree")
    new = git("-C", str(top), "ls-files", "--others", "--exclude-standard", "-z", problem="cannot list the files")
    for name in filter(None, (changed + new).split("\0")):
        source, target = top / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        else:
            target.unlink(missing_ok=True)


def git(*words: str, problem: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CommandError("git is not installed, so there are no revisions to compare") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [""]
        raise CommandError(f"{problem}{': ' if last[0] else ''}{last[0]}")
    return done.stdout
