"""Records a few events while writes fail, once for each write: `python write_fault_program.py FOLDER ERRNO PERSISTS`.

It runs with the library of write_faults.c. It prints, for each k, what the program and the recording show when the k-th
write fails, as JSON: status, stdout, stderr, the events that can be read, and what the recording says about the others.
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from torchtriage import errors
from torchtriage.errors import TriageError
from torchtriage.recording.events import GraphBreak
from torchtriage.recording.recorder import Recorder
from torchtriage.recording.recording import Series
from torchtriage.recording.store import read_process

EVENTS = 4
MAX_WRITES = 300
faults = ctypes.CDLL(None)


class Steps:
    """A source with a fact and a series that change at each write."""

    def __init__(self) -> None:
        self._number = 0

    def facts(self) -> dict[str, Any]:
        self._number += 1
        return {"num_steps": self._number}

    def series(self) -> list[Series]:
        return [Series(name="loss", steps=[float(i) for i in range(2000)], values=[float(self._number)] * 2000)]

    def last_events(self) -> list[GraphBreak]:
        return []


def program(folder: Path, call: int, error: int, persists: int) -> int:
    """The program; returns its exit status."""
    print("before")
    faults.faults_arm(call, error, persists)
    recorder = Recorder(folder, lambda: {"host": "box", "pid": os.getpid()}, always=True)
    recorder.follow(Steps())
    for number in range(EVENTS):
        recorder.add(GraphBreak(type=str(number)))
        recorder.sync()
    recorder.close()
    print("after")
    sys.stdout.flush()
    return 100 if faults.faults_calls() >= call else 101


def outcome(folder: Path, call: int, error: int, persists: int) -> dict[str, Any]:
    out, err = folder / "stdout", folder / "stderr"
    target = folder / f"{call}.triage"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        errors._stderr_at_start = errors._stderr()
        status = 1
        try:
            status = program(target, call, error, persists)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    seen: list[str] = []
    said: dict[str, Any] = {}
    for path in target.glob("*.sqlite"):
        try:
            process = read_process(path)
        except TriageError as problem:
            said["unreadable"] = str(problem)
            continue
        seen += [event.type for event in process.of(GraphBreak)]
        said.update({key: process.facts[key] for key in ("recorder_error", "dropped") if process.facts.get(key)})
    for path in target.glob("*.error"):
        said["error_file"] = path.read_text()
    return {"status": status, "stdout": out.read_text(), "stderr": err.read_text(), "seen": seen, "said": said}


if __name__ == "__main__":
    for number in range(1, MAX_WRITES):
        result = outcome(Path(sys.argv[1]), number, int(sys.argv[2]), int(sys.argv[3]))
        print(json.dumps(result))
        if result["status"] == 101:     # the program made fewer writes
            break
