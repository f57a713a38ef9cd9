"""The numbers of a process, one JSON object per line, in a file beside its recording."""

import json
import os
from typing import Any, TextIO

SUFFIX = ".numbers"
EVERY_STEP = 64     # from here on the rows become rarer: as many per doubling of the step


def is_recorded(step: int) -> bool:
    """Whether this step has its tensors recorded; the first ones all have."""
    return step <= EVERY_STEP or step % (1 << ((step - 1) // EVERY_STEP).bit_length()) == 0


class NumbersFile:
    """Made with its first line, so that a process without numbers leaves no file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: TextIO | None = None

    def put(self, **fields: Any) -> None:
        if self._file is None:
            path = os.path.join(self._folder, f"proof-{os.getpid()}{SUFFIX}")
            self._file = open(path, "a", encoding="utf-8", buffering=1)     # noqa: SIM115 - open to the end
        self._file.write(json.dumps(fields) + "\n")

    def start_over(self) -> None:
        """In a forked child: the file is the parent's."""
        self._file = None
