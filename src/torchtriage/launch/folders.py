"""Finds a free folder for a new recording; only an earlier recording is ever overwritten."""

import os
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.launch.environment import RUN_FILE, foreign_file


def free_folder(name: str | Path, *, replace: bool, flag: str) -> Path:
    """The path of the folder, which does not exist yet; `flag` is the command-line flag that names another one."""
    folder = Path(name).absolute()
    if folder.suffix != ".triage":
        folder = folder.with_name(folder.name + ".triage")
    if not os.path.lexists(folder):
        return folder
    if folder.is_symlink() or not folder.is_dir():
        raise _not_a_recording(folder, "", flag)
    try:
        is_empty = not any(folder.iterdir())
        foreign = foreign_file(str(folder))
        if foreign or not (is_empty or (folder / RUN_FILE).is_file()):
            raise _not_a_recording(folder, foreign, flag)
        if not is_empty and not replace:
            raise CommandError(f"{folder} holds an earlier run; overwrite it with --force, or name another with {flag}")
        remove_recording(folder)
    except OSError as error:
        raise CommandError(f"cannot overwrite {folder}: {error.strerror}; name another with {flag}") from error
    return folder


def remove_recording(folder: Path) -> None:
    """Delete the files of a recording and its folder; raises OSError, and deletes nothing, if it has other files."""
    foreign = foreign_file(str(folder))
    if foreign:
        raise OSError(None, f"{foreign} in it is not of a recording")
    # The mark goes last: what remains of an interrupted removal is still known as ours.
    for path in sorted(folder.iterdir(), key=lambda path: path.name == RUN_FILE):
        path.unlink()
    folder.rmdir()


def _not_a_recording(folder: Path, foreign: str, flag: str) -> CommandError:
    reason = f" ({foreign} in it is of something else)" if foreign else ""
    return CommandError(f"{folder} exists and is not a recording{reason}; it is left alone, name another with {flag}")
