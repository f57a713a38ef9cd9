"""How a run and its processes find each other: the variables they inherit, and the folder they join."""

import os
import re
import sys
import time
from collections.abc import MutableMapping, Sequence

FOLDER = "TORCHTRIAGE"              # the recording's folder; set it before any command to observe that command
RUN_ID = "TORCHTRIAGE_RUN_ID"       # set by the process that made the folder; whoever inherits it joins
MEASURE = "TORCHTRIAGE_MEASURE"     # "1": time compiled pieces and the gaps between them
RUN_FILE = "run_id"
MAX_READS = 100                     # a second, for an id that another process is writing
_JOB_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")

_ALLOWED = re.compile(
    r"(TORCH|TORCHDYNAMO|TORCHINDUCTOR|TORCH_COMPILE|TORCH_LOGS|TORCH_TRACE|AOT|FUNCTORCH|OMP|MKL|KMP)_?[A-Z0-9_]*$"
    r"|(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|CUDA_VISIBLE_DEVICES|PYTHONHASHSEED|PYTHONOPTIMIZE)$"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH", re.I)


def allowed_environment(environ: MutableMapping[str, str]) -> dict[str, str]:
    """The variables that bear on torch.compile, never one whose name looks like a secret."""
    return {k: v for k, v in sorted(environ.items()) if _ALLOWED.match(k) and not _SECRET.search(k) and not k.startswith(FOLDER)}


def redacted(words: Sequence[str]) -> list[str]:
    """A command line without the values of flags whose names look like secrets."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        flag, equals, _ = word.partition("=")
        is_secret = word.startswith("-") and bool(_SECRET.search(flag))
        shown.append("***" if hide_next and not word.startswith("-") else f"{flag}=***" if is_secret and equals else word)
        hide_next = is_secret and not equals
    return shown


def new_run_id(environ: MutableMapping[str, str]) -> str:
    """An id that the ranks of one job agree on without talking, where the scheduler gives one."""
    for name in _JOB_IDS:
        value = environ.get(name)
        if value and value != "none":
            return f"{name.lower()}-{value}-{environ.get('SLURM_STEP_ID', '')}"
    return f"{time.time_ns():x}-{os.getpid()}"


def join_folder(environ: MutableMapping[str, str]) -> str | None:
    """The folder this process records into; the first process makes it. None, with a line on stderr, if it cannot be written."""
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
        print(f"torchtriage: cannot write {folder}: {error.strerror or error}; the program runs unobserved", file=sys.stderr)
        environ.pop(FOLDER, None)
        return None


def _claim(folder: str, run_id: str) -> str:
    """Make the folder for this run; the folder of another run is left alone and the next free name taken."""
    base, suffix = os.path.splitext(folder)
    number = 1
    while not claim(folder, run_id):
        number += 1
        folder = f"{base}-{number}{suffix}"
    if number > 1:
        print(f"torchtriage: {base}{suffix} holds an earlier run; recording into {folder}", file=sys.stderr)
    return folder


def claim(folder: str, run_id: str) -> bool:
    """Whether this run now owns the folder: it made it, or another process of the same run did."""
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
    """The id in the file; another rank may have made it this instant and be about to write it."""
    for _ in range(MAX_READS):
        with open(path, encoding="utf-8") as file:
            run_id = file.read()
        if run_id:
            break
        time.sleep(0.01)
    return run_id


def _holds_recording(folder: str) -> bool:
    return any(name.endswith(".sqlite") for name in os.listdir(folder))
