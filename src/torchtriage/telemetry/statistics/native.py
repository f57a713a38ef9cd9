"""The native statistics kernel, loaded once. Without it (no C compiler at installation) the ATen path replaces it."""

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
    """The functions of the shared library, and the instruction sets of this machine."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._read, self._isa = library.tensor_stats_read, library.tensor_stats_isa
        addresses = [ctypes.c_void_p] * 3
        # run(isa, num, pointers, nums, dtypes, small, large, table, team, num_threads) fills a table of `num` rows.
        # Arguments other than isa, num, small, large and num_threads are addresses. It returns 0, or 1 + the index of a
        # tensor that it cannot read. There is no method around it, because it is called for every sample.
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
        """The number of threads for `run` with `team`: torch's own; 1 in a forked child, where the runtime would
        hang.
        """
        return torch.get_num_threads() if self.team and os.getpid() == self._pid else 1

    def read(self, isa: int, num: int, pointers: int, num_bytes: int) -> int:
        """Read the same bytes and add them up, as a reference for the benchmark."""
        return int(self._read(isa, num, pointers, num_bytes))


def _team() -> int:
    """The address of the function with which torch's OpenMP runtime starts its threads; 0 if torch has another
    runtime.
    """
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError, TypeError):        # TypeError: Windows has no process-wide library
        return 0


def shared_library(name: str) -> ctypes.CDLL:
    """A native library of torchtriage; OSError if it was not built, or not for this machine."""
    suffix = ".dll" if sys.platform == "win32" else ".so"
    return ctypes.CDLL(str(importlib.resources.files("torchtriage.native") / f"{name}{suffix}"))


@functools.cache
def load() -> Kernel | None:
    """The kernel; None if it was not built, or not for this machine."""
    try:
        return Kernel(shared_library("_tensor_stats"))
    except (OSError, AttributeError):
        return None


def described() -> dict[str, Any]:
    """Which implementation computes statistics, for a report."""
    kernel = load()
    if kernel is None:
        return {"kernel": "", "why_not": "the native library was not built (no C compiler)"}
    return {"kernel": kernel.isas[-1], "why_not": ""}
