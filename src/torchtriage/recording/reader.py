"""Reads a `.triage` folder: one file per process, one of the launcher."""

import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.files import read_regular
from torchtriage.recording.facts import Damage
from torchtriage.recording.origins.origin import ORIGIN_FILE, read_origin
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.shards import with_complete_series
from torchtriage.recording.store import read_process
from torchtriage.recording.validation import parsed_json

MAX_STUDY = 64 << 20    # bytes; a study of many sizes has some 100 kB
LAUNCHER_FILE = "launcher.sqlite"
MAX_PROOFS = 4 << 20
PROOFS_FILE = "proofs.json"     # the verified edits of `torchtriage fix RECORDING --verify`
STUDY_FILE = "shapes.json"      # the results of `torchtriage shapes`, beside the recording of the unmodified program


def is_recording(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "run_id").exists() or any(folder.glob("*.sqlite")))


def read_recording(folder: Path) -> Recording:
    """The processes of a run, ordered by rank and start; the facts of the run are those of its launcher."""
    facts: dict[str, object] = {"joined": (folder / "joined").exists()}
    processes = []
    problems = []
    damage: tuple[Damage, ...] = ()
    for path in sorted(folder.glob("*.sqlite")):
        try:
            process = read_process(path)
        except TriageError as error:
            problems.append(error)      # a process that was killed as it started must not hide the others
            continue
        if path.name == LAUNCHER_FILE:
            facts.update(process.facts)
            damage = process.unreadable
        else:
            processes.append(replace(process, facts={**process.facts, "is_running": _is_running(process)}))
    if problems and not processes:
        raise problems[0]
    if not processes and not (folder / "run_id").exists():
        raise TriageError(f"{folder} holds no recording; make one with: torchtriage run SCRIPT.py")
    facts["unreadable_files"] = [str(problem) for problem in problems]
    facts.update(_content(folder / STUDY_FILE, "shapes", MAX_STUDY))
    facts.update(_content(folder / PROOFS_FILE, "proofs", MAX_PROOFS))
    processes = _with_origin(folder, processes)
    processes.sort(key=lambda p: (p.rank if p.rank is not None else -1, p.program.start or 0.0))
    return Recording(processes=tuple(with_complete_series(processes)), facts=facts, path=str(folder), unreadable=damage)


def _with_origin(folder: Path, processes: list[Process]) -> list[Process]:
    """The result of `torchtriage replay` belongs to one process."""
    try:
        origin = read_origin(folder)
    except (OSError, ValueError) as error:
        damage = Damage(name=ORIGIN_FILE, problem=str(getattr(error, "strerror", None) or error))
        return [replace(process, unreadable=(*process.unreadable, damage)) for process in processes]
    return [
        replace(process, facts={**process.facts, "non_finite_origin": origin})
        if origin and process.program.pid == origin.get("pid") else process
        for process in processes
    ]


def _is_running(process: Process) -> bool | None:
    """Whether the process still runs; None where this machine cannot know."""
    program = process.program
    if process.recorder.end or not program.pid or not program.start or program.host != (platform.node() or "host"):
        return None
    try:
        boot = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if "btime" in line)
    except (OSError, StopIteration):
        return None
    try:
        state, *fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    began = boot + int(fields[18]) / os.sysconf("SC_CLK_TCK")
    return state not in "ZX" and began < program.start + 2.0        # a later process has only the same number


def _content(path: Path, name: str, max_bytes: int) -> dict[str, Any]:
    """The plain data of a JSON file under this name, or the problem under `NAME_problem`; empty without the file."""
    try:
        return {name: parsed_json(read_regular(path, max_bytes))}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {f"{name}_problem": f"cannot read {path.name}: {getattr(error, 'strerror', None) or error}"}
