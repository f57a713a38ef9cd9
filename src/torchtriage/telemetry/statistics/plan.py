"""Statistics of the same tensors at every step, with all possible preparation done once.   P tensors, S statistics."""

import struct
from collections.abc import Sequence
from itertools import compress
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics import native as kernel
from torchtriage.telemetry.statistics.aten import AtenPlan
from torchtriage.telemetry.statistics.columns import (
    LARGE,
    NUM_STATS,
    SMALL,
    is_dense,
    why_refused,
)
from torchtriage.text import counted

ATEN = "aten"
# From this size several threads were faster even if they had to be woken (docs/internals/measurements.md).
TEAM_BYTES = 4 << 20
MAX_PLANS = 16      # cached by number of tensors: repeated calls mostly measure the same ones
_gradient, _dtype, _is_cpu = attrgetter("grad"), attrgetter("dtype"), attrgetter("is_cpu")
_numel, _is_contiguous = torch.Tensor.numel, torch.Tensor.is_contiguous
_is_neg, _data_ptr = torch.Tensor.is_neg, torch.Tensor.data_ptr


class TensorPlan:
    """Repeated statistics of a list of tensors.

    Every run checks types, dtypes, devices, sizes, strides and addresses again, so tensors may appear, disappear
    (None), move and change. The kernel reads dense tensors on the CPU; the ATen path measures the rest (another
    device, float8, a strided view, no kernel). A tensor without statistics (a DTensor, sparse, complex, quantised,
    without data) raises an error with its name. With `strict=False` it is left out instead, and `refused` holds the
    reason. A tensor that is left out or None has a row of zeros.
    """

    def __init__(
        self, names: Sequence[str], *, small: float = SMALL, large: float = LARGE, path: str = "", strict: bool = True,
        in_team: bool = False,
    ) -> None:
        """`path`: "" for the fastest available, "aten", or the name of an instruction set of the kernel.

        `in_team`: use torch's threads for large tensors. Right after a backward they are awake; otherwise waking them
        costs CPU time.
        """
        self.names = list(names)
        self.refused: dict[str, str] = {}
        self.table_PS = np.zeros((len(self.names), NUM_STATS))
        self._small, self._large, self._strict = float(small), float(large), strict
        self._in_team = in_team
        self._kernel, self._isa = choose(path)
        self._types: list[type] | None = None
        self._is_simple = False         # the kernel reads every tensor
        self._by_device: list[tuple[list[int], AtenPlan]] = []

    def run(self, tensors: list[Any], out_PS: Any = None) -> Any:
        """float64 [P, S]: `out_PS` if given, else an array that every run overwrites.

        Waits for devices other than the CPU.
        """
        table_PS = self.table_PS if out_PS is None else self._checked(out_PS)
        read = self._as_before(tensors)
        if read is None:
            read = self._route(tensors)
        if read:
            self._run_kernel(read, table_PS)
        for indices, plan in self._by_device:
            table_PS[indices] = plan.run([tensors[i] for i in indices]).numpy(force=True)
        if self._empty:
            table_PS[self._empty] = 0
        return table_PS

    def fill(self, tensors: list[Any], table_at: int, limits: bool = True) -> bool:
        """Like `run` into the array at an address, if the kernel can read all tensors as it did the last time; else
        False.

        Without `limits`, small and large elements are not counted, which takes a sixth less time if memory is fast.
        """
        if not self._is_simple or self._as_before(tensors) is None:
            return False
        self._read_all(tensors, table_at, limits)
        return True

    @property
    def holds_buffers(self) -> bool:
        """Whether the ATen path measures some of the tensors, with buffers that it keeps."""
        return bool(self._by_device)

    def _as_before(self, tensors: list[Any]) -> list[torch.Tensor] | None:
        """The tensors for the kernel, if all have the types, sizes and layouts that `_route` prepared for; else None.
        """
        if list(map(type, tensors)) != self._types:
            return None
        present = tensors if self._are_all_present else list(compress(tensors, self._is_present))
        if list(map(_dtype, present)) != self._dtypes or list(map(_is_cpu, present)) != self._on_cpu:
            return None
        read = tensors if self._part_PS is None else list(compress(tensors, self._is_read))
        # A sparse tensor is never contiguous, so a dense tensor that becomes sparse is detected here.
        if list(map(_numel, read)) != self._numels or list(map(_is_contiguous, read)) != self._contiguous:
            return None
        if True in map(_is_neg, read):      # the memory of such a tensor holds negated values
            return None
        if self._watched and [_layout(tensors[i]) for i in self._watched] != self._layouts:
            return None
        return read

    def _route(self, tensors: list[Any]) -> list[torch.Tensor]:
        """Assign each tensor to the kernel, to the ATen path of its device, or to neither."""
        if len(tensors) != len(self.names):
            raise TriageError(
                f"expected {counted(len(self.names), 'tensor')}, one per name, got {len(tensors)}; make a new plan"
            )
        self._types, self._is_simple = None, False      # the plan is not valid if this raises
        self.refused = {}
        for name, tensor in zip(self.names, tensors, strict=True):
            if tensor is not None and (reason := why_refused(tensor)):
                self.refused[name] = reason
        if self.refused and self._strict:
            name, reason = next(iter(self.refused.items()))
            raise TriageError(f"no statistics of {name}: it {reason}")
        present = [i for i, tensor in enumerate(tensors) if tensor is not None]
        live = [i for i in present if self.names[i] not in self.refused]
        self._read = [i for i in live if self._kernel and is_readable(tensors[i])]
        self._empty = sorted(set(range(len(tensors))) - set(live))
        by_device: dict[torch.device, list[int]] = {}
        for i in sorted(set(live) - set(self._read)):
            by_device.setdefault(tensors[i].device, []).append(i)
        self._by_device = []
        for indices in by_device.values():
            plan = AtenPlan([tensors[i] for i in indices], small=self._small, large=self._large)
            self._by_device.append((indices, plan))
        self._is_present, self._is_read = _mask(present, len(tensors)), _mask(self._read, len(tensors))
        self._are_all_present = len(present) == len(tensors)
        read: list[torch.Tensor] = [tensors[i] for i in self._read]
        self._dtypes, self._on_cpu = [tensors[i].dtype for i in present], [tensors[i].is_cpu for i in present]
        self._numels = list(map(_numel, read))
        self._contiguous = list(map(_is_contiguous, read))
        plain = {i for i in self._read if tensors[i].is_contiguous()}
        self._watched = [i for i in present if i not in plain]
        self._layouts = [_layout(tensors[i]) for i in self._watched]
        self._prepare(read)
        self._types = list(map(type, tensors))
        self._is_simple = bool(read) and len(read) == len(tensors)
        return read

    def _prepare(self, read: list[torch.Tensor]) -> None:
        """Make the arrays for the kernel and store their addresses."""
        self._pointers: Any = np.zeros(len(read), dtype=np.int64)
        self._pack = struct.Struct(f"={len(read)}q").pack_into
        self._nums = np.array(self._numels, dtype=np.int64)
        self._codes = np.array([kernel.DTYPES[tensor.dtype] for tensor in read], dtype=np.int32)
        reads_all = len(read) == len(self.names)
        self._part_PS: Any = None if reads_all else np.zeros((len(read), NUM_STATS))
        self._pointers_at = int(self._pointers.ctypes.data)
        self._nums_at, self._codes_at = int(self._nums.ctypes.data), int(self._codes.ctypes.data)
        self._is_large = self._in_team and sum(tensor.nbytes for tensor in read) >= TEAM_BYTES
        filled_PS: Any = self.table_PS if reads_all else self._part_PS
        self._table_at = int(filled_PS.ctypes.data)

    def _run_kernel(self, read: list[torch.Tensor], table_PS: Any) -> None:
        is_prepared = self._part_PS is not None or table_PS is self.table_PS
        self._read_all(read, self._table_at if is_prepared else table_PS.ctypes.data)
        if self._part_PS is not None:
            table_PS[self._read] = self._part_PS

    def _read_all(self, read: list[torch.Tensor], table_at: int, limits: bool = True) -> None:
        self._pack(self._pointers, 0, *map(_data_ptr, read))        # three times as fast as assigning a list
        assert self._kernel is not None
        small, large = (self._small, self._large) if limits else (0.0, inf)
        bad = self._kernel.run(
            self._isa, len(read), self._pointers_at, self._nums_at, self._codes_at, small, large, table_at,
            self._kernel.team, self._kernel.team_size() if self._is_large else 1,
        )
        if bad:
            name = self.names[self._read[bad - 1]]
            raise TriageError(f"no statistics of {name}: its memory was freed (its address is 0); give it data")

    def _checked(self, out_PS: Any) -> Any:
        if out_PS.shape != self.table_PS.shape or out_PS.dtype != np.float64 or not out_PS.flags.c_contiguous:
            raise TriageError(
                f"expected a contiguous float64 array of shape {self.table_PS.shape}, got {out_PS.dtype} of shape "
                f"{out_PS.shape}; copy the result of run() instead"
            )
        return out_PS


class ParameterPlan(TensorPlan):
    """Statistics of parameters: of their gradients, of their weights, or of both."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], *, names: Sequence[str] = (), gradients: bool = True,
        weights: bool = False, small: float = SMALL, large: float = LARGE, path: str = "", strict: bool = True,
    ) -> None:
        self._parameters, self._of_gradients, self._of_weights = list(parameters), gradients, weights
        names = names or [f"parameter {i}" for i in range(len(self._parameters))]
        if len(names) != len(self._parameters):
            raise TriageError(
                f"expected one name per parameter, got {counted(len(names), 'name')} for "
                f"{counted(len(self._parameters), 'parameter')}"
            )
        tensor_names = [f"the gradient of {name}" for name in names] if gradients else []
        if weights:
            tensor_names += names
        super().__init__(tensor_names, small=small, large=large, path=path, strict=strict)

    def step(self, out_PS: Any = None) -> Any:
        """`run` with the current parameters and gradients: rows of gradients before rows of weights."""
        tensors = list(map(_gradient, self._parameters)) if self._of_gradients else []
        if self._of_weights:
            tensors += self._parameters
        return self.run(tensors, out_PS)


def choose(path: str) -> tuple[kernel.Kernel | None, int]:
    """The kernel and the number of its instruction set; no kernel for the ATen path."""
    loaded = None if path == ATEN else kernel.load()
    if loaded is None and path in ("", ATEN):
        return None, 0
    isas = loaded.isas if loaded else []
    if path and path not in isas:
        raise TriageError(f"no path {path!r} on this machine; it has: {', '.join([ATEN, *isas])}")
    return loaded, isas.index(path) if path else len(isas) - 1


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether the kernel can read the tensor by its address."""
    return tensor.is_cpu and tensor.dtype in kernel.DTYPES and is_dense(tensor) and not tensor.is_neg()


def _mask(indices: list[int], length: int) -> list[bool]:
    members = set(indices)
    return [i in members for i in range(length)]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.device, tensor.layout, tensor.shape, tensor.stride() if tensor.layout is torch.strided else ()


_plans: dict[tuple[object, ...], TensorPlan] = {}


def statistics(
    tensors: Sequence[torch.Tensor], *, small: float = SMALL, large: float = LARGE, names: Sequence[str] = (),
    path: str = "",
) -> Any:
    """A new float64 array [P, len(Stat)] with one row per tensor, in one transfer per device.

    A ParameterPlan is faster for the same parameters at every step.
    """
    tensors = list(tensors)
    key = kernel.load(), path, small, large, len(tensors), len(names)
    plan = _plans.pop(key, None)        # removed: no other thread may fill its arrays at the same time
    if plan is None:
        plan = TensorPlan(names or [f"tensor {i}" for i in range(len(tensors))], small=small, large=large, path=path)
    elif names:
        plan.names = list(names)
    table_PS = plan.run(tensors, np.empty((len(plan.names), NUM_STATS)))
    if not plan.holds_buffers:
        if len(_plans) >= MAX_PLANS:
            _plans.clear()
        _plans[key] = plan
    return table_PS
