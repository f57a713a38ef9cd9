"""Several rules, and the history, ask the same of a process: the answer is worked out once."""

import functools
from collections.abc import Callable
from typing import TypeVar

from torchtriage.recording.recording import Process

R = TypeVar("R")


def once(function: Callable[[Process], R]) -> Callable[[Process], R]:
    """The function with its answer kept beside the process; nobody may change the answer."""

    @functools.wraps(function)
    def answer(process: Process) -> R:
        return process.once(function)

    return answer
