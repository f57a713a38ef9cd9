"""The environment variables that the processes of a run inherit, and the folder that they join."""

from __future__ import annotations

import os
import time

from torchtriage.errors import tell

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
RUN_FILE = "run_id"
MAX_READS = 100                     # one second, to wait for an id that another process is writing
_JOB_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def new_run_id(environ: MutableMapping[str, str]) -> str:
    """An id that the ranks of one job share without communication if the scheduler gives one; else a new one."""
    for name in _JOB_IDS:
        value = environ.get(name)
        if value and value != "none":
            return f"{name.lower()}-{value}-{environ.get('SLURM_STEP_ID', '')}"
    return f"{time.time_ns():x}-{os.getpid()}"


def join_folder(environ: MutableMapping[str, str]) -> str | None:
    """The folder that this process records into; the first process makes it.

    None, with a line on stderr, if it cannot be written.
    """
    folder = os.path.abspath(environ[FOLDER])
    run_id = environ.get(RUN_ID)
    try:
        if run_id is None:
            run_id = new_run_id(environ)
            folder = _claim(folder, run_id)
            environ[RUN_ID] = run_id
        environ[FOLDER] = folder
        return folder
    except OSError as error:
        reason = error.strerror or error
        tell(f"cannot write {folder}: {reason}; the program runs unobserved")
        environ.pop(FOLDER, None)
        return None


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
    if _holds_recording(folder) and not os.path.exists(path):
        return False
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(run_id)
        return True
    except FileExistsError:
        return _read_id(path) == run_id


def _read_id(path: str) -> str:
    """The id in the file; another rank may just have made the file and be about to write it."""
    for _ in range(MAX_READS):
        with open(path, encoding="utf-8") as file:
            run_id = file.read()
        if run_id:
            break
        time.sleep(0.01)
    return run_id


def _holds_recording(folder: str) -> bool:
    return any(name.endswith(".sqlite") for name in os.listdir(folder))
