"""The silent-eager meter: counts the calls that ran eager after a frame hit its recompile limit."""

import ctypes
import importlib.resources
from collections.abc import Callable
from typing import Any

from torchtriage.capture.torch_private.dynamo import set_guard_hook


class EagerMeter:
    """Counts calls of all compiled frames of the process; armed by the first limit, so that a healthy run pays nothing.

    A guard miss that leads to a recompile is not an eager call, so recompiles since arming are subtracted.
    """

    def __init__(self) -> None:
        self._library: ctypes.PyDLL | None = None
        self._start = (0, 0)     # hits and misses that the library had counted when this meter was armed
        self._num_recompiles = 0
        self.was_armed = False

    def arm(self) -> str:
        """Install the hook; returns "" on success, else why it is absent."""
        self.was_armed = True
        library = _load()
        if library is None:
            return "the native part was not built (no C compiler when torchtriage was installed)"
        problem = "" if _armed else _install(library)
        if problem:
            return problem
        _armed.append(self)
        self._library = library
        self.start_over()
        return ""

    def disarm(self) -> None:
        if self._library is not None:
            self._library = None
            _armed.remove(self)
            if not _armed:
                set_guard_hook(None)

    def start_over(self) -> None:
        """Reset the counts; a forked child inherits the hook and the counts of its parent."""
        if self._library is not None:
            self._start = (self._library.guard_meter_hits(), self._library.guard_meter_misses())
            self._num_recompiles = 0

    def count_recompile(self) -> None:
        if self._library is not None:
            self._num_recompiles += 1

    def facts(self) -> dict[str, int] | None:
        """The counts since arming; None if no frame has hit its limit."""
        if self._library is None:
            return None
        hits = self._library.guard_meter_hits() - self._start[0]
        misses = self._library.guard_meter_misses() - self._start[1]
        eager = max(0, misses - self._num_recompiles)
        return {"hits": hits, "misses": misses, "recompiles": self._num_recompiles, "eager": eager}


# Several observations of one process share the hook; each subtracts what was counted before it began.
_armed: list[EagerMeter] = []


def _install(library: ctypes.PyDLL) -> str:
    """Make the library's function the hook; returns "" on success, else the reason against it."""
    available, previous = set_guard_hook(library.guard_meter_count)
    if not available:
        return "this torch has no guard-complete hook"
    if previous is not None:
        set_guard_hook(previous)
        return "another guard-complete hook is in use (guard collectives)"
    return ""


def _load() -> ctypes.PyDLL | None:
    """The native library as a PyDLL: Dynamo calls it with the GIL held, and no Python code runs in between."""
    for file in importlib.resources.files("torchtriage.native").iterdir():
        if file.name.startswith("_guard_meter."):
            try:
                library = ctypes.PyDLL(str(file))
            except OSError:
                return None
            _typed(library.guard_meter_count, ctypes.c_bool, ctypes.c_bool)
            _typed(library.guard_meter_hits, ctypes.c_longlong)
            _typed(library.guard_meter_misses, ctypes.c_longlong)
            return library
    return None


def _typed(function: Any, result: Callable[..., Any], *arguments: Callable[..., Any]) -> None:
    function.restype = result
    function.argtypes = arguments
