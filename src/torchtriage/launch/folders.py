"""Finds a free folder for a new recording; only an earlier recording is ever overwritten."""

import shutil
from pathlib import Path

from torchtriage.errors import CommandError
from torchtriage.launch.environment import RUN_FILE


def free_folder(name: str | Path, *, replace: bool, flag: str) -> Path:
    """The path of the folder, which does not exist yet; `flag` is the command-line flag that names another one."""
    folder = Path(name).absolute()
    if folder.suffix != ".triage":
        folder = folder.with_name(folder.name + ".triage")
    if not folder.exists():
        return folder
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if not is_empty and not (folder / RUN_FILE).is_file():
        raise CommandError(f"{folder} exists and is not a recording; it is left alone, name another with {flag}")
    if not is_empty and not replace:
        raise CommandError(f"{folder} holds an earlier run; overwrite it with --force, or name another with {flag}")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise CommandError(f"cannot overwrite {folder}: {error.strerror}; name another with {flag}") from error
    return folder
