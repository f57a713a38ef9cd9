"""The native statistics kernel, loaded once. Without it (no compiler when torchtriage was installed) the ATen path does its work."""

import ctypes
import functools
import importlib.resources
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class Kernel:
    """The functions of the shared library, and the instruction sets that this machine can choose from."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._read, self._isa = library.tensor_stats_read, library.tensor_stats_isa
        addresses = [ctypes.c_void_p] * 3
        # run(isa, num, pointers, nums, dtypes, small, large, table, team, num_threads) fills a table of `num` rows; all but the first two,
        # the limits and the last are addresses. 0, or 1 + the index of a tensor that it does not understand. Without a method around it:
        # it is called at every look.
        self.run: Callable[[int, int, int, int, int, float, float, int, int, int], int] = library.tensor_stats_run
        library.tensor_stats_run.argtypes = [
            ctypes.c_int, ctypes.c_int64, *addresses, ctypes.c_double, ctypes.c_double, *addresses[:2], ctypes.c_int,
        ]
        library.tensor_stats_run.restype = ctypes.c_int64
        self._read.argtypes = [ctypes.c_int, ctypes.c_int64, *addresses[:2]]
        self._read.restype = ctypes.c_uint64
        self._isa.restype = ctypes.c_char_p
        self.team = _team()
        self._pid = os.getpid()
        self.isas = [self._isa(i).decode() for i in range(library.tensor_stats_widest() + 1)]      # the widest last

    def team_size(self) -> int:
        """How many threads `run` may be given with `team`: torch's number; 1 in a forked child, where the runtime waits for ever."""
        return torch.get_num_threads() if self.team and os.getpid() == self._pid else 1

    def read(self, isa: int, num: int, pointers: int, num_bytes: int) -> int:
        """Reads the same bytes and adds them up: what the benchmark compares with."""
        return int(self._read(isa, num, pointers, num_bytes))


def _team() -> int:
    """The address of the function with which torch's OpenMP runtime starts its threads; 0 if torch has another runtime."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError, TypeError):        # TypeError: Windows has no library of the whole process
        return 0


def shared_library(name: str) -> ctypes.CDLL:
    """A native part of torchtriage; OSError if it was not built, or not for this machine."""
    return ctypes.CDLL(str(importlib.resources.files("torchtriage.native") / f"{name}{'.dll' if sys.platform == 'win32' else '.so'}"))


@functools.cache
def load() -> Kernel | None:
    """None if it was not built, or not for this machine."""
    try:
        return Kernel(shared_library("_tensor_stats"))
    except (OSError, AttributeError):
        return None


def described() -> dict[str, Any]:
    """Which path statistics take, for a report."""
    found = load()
    return {"kernel": found.isas[-1] if found else "", "why_not": "" if found else "the native part was not built (no C compiler)"}
