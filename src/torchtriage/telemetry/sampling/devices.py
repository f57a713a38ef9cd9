"""Measures the parameters of one device into a row of host memory.   P tensors, S statistics."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import torch

from torchtriage.telemetry.sharding.dtensor import local, local_gradient
from torchtriage.telemetry.statistics.aten import AtenPlan
from torchtriage.telemetry.statistics.columns import is_dtensor, why_refused
from torchtriage.telemetry.statistics.plan import TensorPlan

_gradient = attrgetter("grad")
MAX_PLANS = 8       # for parameters that are clipped separately; beyond, the oldest plan is made again


class Part(Protocol):
    """The parameters of one device. `take` fills `host_PS` and returns the tensors in it, those of `before` first.

    If `is_in_place`, `host_PS` is an array and row i belongs to tensor i. Otherwise it is a tensor, and rows are in the
    order that `take` returned.
    """

    is_in_place: bool
    refused: dict[str, str]

    def take(self, host_PS: Any, before: Sequence[int], only: Sequence[int] | None, weights: bool) -> Sequence[int]: ...


def new_part(device: torch.device, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> Part:
    return HostPart(names, parameters) if device.type == "cpu" else DevicePart(device, names, parameters)


class _Parameters:
    """Provides the tensors to measure: the local part of a DTensor."""

    def __init__(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        self.refused: dict[str, str] = {}
        self._names, self._parameters = names, list(parameters)
        self._has_shards = any(map(is_dtensor, parameters))

    def _tensors(self, weights: bool, indices: Iterable[int]) -> list[Any]:
        if not self._has_shards:
            return [self._parameters[i] if weights else self._parameters[i].grad for i in indices]
        if weights:
            return [local(self._parameters[i]) for i in indices]
        gradients = []
        for i in indices:
            gradient, why_not = local_gradient(self._parameters[i])
            if why_not:
                self.refused[self._names[i]] = why_not
            gradients.append(gradient)
        return gradients


class HostPart(_Parameters):
    """Parameters on the CPU: the kernel writes directly into the ring."""

    is_in_place = True

    def __init__(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(names, parameters)
        self._all = range(len(parameters))
        self._plans: dict[tuple[bool, Sequence[int]], TensorPlan] = {}

    def take_all(self, table_at: int, weights: bool, limits: bool) -> Sequence[int] | None:
        """Like `take` of all tensors, into the array at an address; None if a tensor has changed since the last time.

        `limits`: whether small and large elements are counted.
        """

        plan = self._plans.get((weights, self._all))
        if plan is None or self._has_shards:
            return None
        tensors = self._parameters if weights else list(map(_gradient, self._parameters))
        return self._all if plan.fill(tensors, table_at, limits) else None

    def take(self, host_PS: Any, before: Sequence[int], only: Sequence[int] | None, weights: bool) -> Sequence[int]:
        if not before and only is None:
            self._run(weights, self._all, host_PS)
            return self._all
        present = set(before)
        wanted = tuple(i for i in (self._all if only is None else only) if i not in present)
        if wanted:
            host_PS[list(wanted)] = self._run(weights, wanted, None)
        return [*before, *wanted] if len(before) + len(wanted) < len(self._all) else self._all

    def _run(self, weights: bool, indices: Sequence[int], out_PS: Any) -> Any:
        plan = self._plan(weights, indices)
        table_PS = plan.run(self._tensors(weights, indices), out_PS)
        if plan.refused:
            self.refused |= plan.refused
        return table_PS

    def _plan(self, weights: bool, indices: Sequence[int]) -> TensorPlan:
        key = weights, indices
        if key not in self._plans:
            if len(self._plans) >= MAX_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = TensorPlan([self._names[i] for i in indices], strict=False, in_team=True)
        return self._plans[key]


class DevicePart(_Parameters):
    """Parameters on another device, measured there; the table may still be on its way to pinned memory when `take`
    returns.
    """

    is_in_place = False

    def __init__(self, device: torch.device, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(names, parameters)
        self._device = device
        self._plans: dict[Any, AtenPlan] = {}

    def take(self, host_PS: Any, before: Sequence[int], only: Sequence[int] | None, weights: bool) -> Sequence[int]:
        present = set(before)
        wanted = [i for i in (range(len(self._parameters)) if only is None else only) if i not in present]
        mine = []
        for i, tensor in zip(wanted, self._tensors(weights, wanted), strict=True):
            if tensor is not None and self._is_measured(i, tensor):
                mine.append((i, tensor))
        if not mine:
            return before
        tensors = [tensor for _, tensor in mine]
        form = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if form not in self._plans:
            if len(self._plans) >= MAX_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[form] = AtenPlan(tensors)
        host_PS[len(before) : len(before) + len(mine)].copy_(self._plans[form].run(tensors), non_blocking=True)
        return [*before, *(i for i, _ in mine)]

    def _is_measured(self, index: int, tensor: torch.Tensor) -> bool:
        reason = why_refused(tensor)
        if not reason and tensor.device != self._device:
            reason = f"is on {tensor.device}, its parameter was on {self._device}"
        if reason:
            self.refused[self._names[index]] = reason
        return not reason

