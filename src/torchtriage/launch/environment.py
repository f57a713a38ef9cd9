"""The environment variables by which the processes of a run find the folder that they join."""

from __future__ import annotations

import os
import time

from torchtriage.errors import tell
from torchtriage.files import read_regular

# Every observed process loads this module, and most of them never load torch. So it imports only modules that Python
# has loaded already, and not typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

FOLDER = "TORCHTRIAGE"              # the folder of the recording; set it to observe any command
RUN_ID = "TORCHTRIAGE_RUN_ID"       # set by the process that made the folder; a process that inherits it joins
MEASURE = "TORCHTRIAGE_MEASURE"     # "1": time compiled pieces and the gaps between them
TELEMETRY = "TORCHTRIAGE_TELEMETRY"     # "0": gradients, weights and losses are not recorded
POLICY = "TORCHTRIAGE_POLICY"       # JSON: the shape policy of a run of `torchtriage shapes`; see capture/policy
PROOF = "TORCHTRIAGE_PROOF"         # JSON: the setting of a run of `torchtriage verify`; see capture/proof
OPERATIONS = "TORCHTRIAGE_OPERATIONS"   # JSON: what `verify --locate` compares; see capture/operations
RUN_FILE = "run_id"                 # the first file in a folder that we make; only such a folder is joined or replaced
MAX_ID = 4096                       # bytes; the id of a scheduler's job is far shorter
MAX_READS = 100                     # one second, to wait for an id that another process is writing
_MARKS = (RUN_FILE, "joined", "imported_torch", "policy_refused", "shapes.json")
_OF_A_PROCESS = (".sqlite", ".sqlite-wal", ".sqlite-shm", ".sqlite-journal", ".error", ".part", ".numbers")
_SWITCHES = ("0", "1", "false", "true", "no", "yes", "off", "on")
_ADVICE = "set TORCHTRIAGE to the name of a new folder, such as run.triage"
_JOB_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def new_run_id(environ: MutableMapping[str, str]) -> str:
    """An id that the ranks of one job share without communication if the scheduler gives one; else a new one."""
    for name in _JOB_IDS:
        value = environ.get(name)
        if value and value != "none":
            return f"{name.lower()}-{value}-{environ.get('SLURM_STEP_ID', '')}"
    return unique_run_id()


def unique_run_id() -> str:
    return f"{time.time_ns():x}-{os.getpid()}"


def join_folder(environ: MutableMapping[str, str]) -> str | None:
    """The folder that this process records into; the first process makes it.

    None, with a line on stderr, if it cannot be written or is not ours.
    """
    name, run_id = environ[FOLDER], environ.get(RUN_ID)
    folder = os.path.abspath(name)
    try:
        if run_id is None:
            _check_name(name)
            run_id = new_run_id(environ)
            folder = _claim(folder, run_id)
            environ[RUN_ID] = run_id
        environ[FOLDER] = folder
        return folder
    except OSError as error:
        reason = error.strerror or error
        tell(f"cannot record into {folder}: {reason}; the program runs unobserved")
        environ.pop(FOLDER, None)
        return None


def _check_name(name: str) -> None:
    if name.lower() in _SWITCHES or not name.strip() or name.startswith("~"):
        raise OSError(None, f"TORCHTRIAGE={name} names no folder; {_ADVICE}")
    if os.path.join(os.path.abspath("."), "").startswith(os.path.join(os.path.abspath(name), "")):
        raise OSError(None, f"it is the working folder or one above it; {_ADVICE}")


def _claim(folder: str, run_id: str) -> str:
    """Make the folder for this run; if it belongs to another run, take the next free name."""
    base, suffix = os.path.splitext(folder)
    number = 1
    while not claim(folder, run_id):
        number += 1
        folder = f"{base}-{number}{suffix}"
    if number > 1:
        tell(f"{base}{suffix} holds an earlier run; recording into {folder}")
    return folder


def claim(folder: str, run_id: str) -> bool:
    """Make the folder; returns whether this run owns it, through this process or another one of the same run."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, RUN_FILE)
    names = os.listdir(folder)
    if names and RUN_FILE not in names:
        foreign = foreign_file(folder)
        if foreign:
            raise OSError(None, f"it is a folder with other files, such as {foreign}; {_ADVICE}")
        return False
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(run_id)
        return True
    except FileExistsError:
        return _read_id(path) == run_id


def foreign_file(folder: str) -> str:
    """The first file in a folder that is not of a recording, by its name; empty if there is none."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not _is_ours(name) or (os.path.isdir(path) and not os.path.islink(path)):
            return name
    return ""


def _is_ours(name: str) -> bool:
    """Whether a recording has files of this name: marks, those of the launcher and of HOST-PID, and temporary ones."""
    if name in _MARKS or (name.startswith(".") and name.endswith(".tmp")):
        return True
    for suffix in _OF_A_PROCESS:
        stem = name.removesuffix(suffix)
        if stem != name and (stem == "launcher" or stem.rpartition("-")[2].isdigit()):
            return True
    return False


def _read_id(path: str) -> str:
    """The id in the file; another rank may just have made the file and be about to write it."""
    for _ in range(MAX_READS):
        try:
            run_id = read_regular(path, MAX_ID).decode("utf-8", "replace")
        except OSError:
            return ""       # not a file of ours, which is regular and small
        if run_id:
            break
        time.sleep(0.01)
    return run_id
