"""Reads a `.triage` folder: every process that left a file, and what the launcher says of the run."""

import json
from pathlib import Path
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.recording.facts import Damage
from torchtriage.recording.recording import Recording
from torchtriage.recording.shards import with_whole
from torchtriage.recording.store import read_process

LAUNCHER_FILE = "launcher.sqlite"
STUDY_FILE = "shapes.json"      # what `torchtriage shapes` measured, beside the recording of the program as it is written


def is_recording(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "run_id").exists() or any(folder.glob("*.sqlite")))


def read_recording(folder: Path) -> Recording:
    """The processes of a run in the order of rank and start; the launcher's facts are the run's."""
    facts: dict[str, object] = {"joined": (folder / "joined").exists()}
    processes = []
    problems = []
    damage: tuple[Damage, ...] = ()
    for path in sorted(folder.glob("*.sqlite")):
        try:
            process = read_process(path)
        except TriageError as error:
            problems.append(error)      # a process that was killed as it began must not take the others with it
            continue
        if path.name == LAUNCHER_FILE:
            facts.update(process.facts)
            damage = process.unreadable
        else:
            processes.append(process)
    if problems and not processes:
        raise problems[0]
    if not processes and not (folder / "run_id").exists():
        raise TriageError(f"{folder} holds no recording; make one with: torchtriage run SCRIPT.py")
    facts["unreadable_files"] = [str(problem) for problem in problems]
    facts.update(_shapes(folder / STUDY_FILE))
    processes.sort(key=lambda p: (p.rank if p.rank is not None else -1, p.program.start or 0.0))
    return Recording(processes=tuple(with_whole(processes)), facts=facts, path=str(folder), unreadable=damage)


def _shapes(path: Path) -> dict[str, Any]:
    """The study as plain data under `shapes`, or under `shapes_problem` why it cannot be read; nothing if there is none."""
    try:
        return {"shapes": json.loads(path.read_text(encoding="utf-8"))}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        return {"shapes_problem": f"cannot read {path.name}: {error}"}
