"""Gradient statistics between backward and clipping, without hooks; a GPU is read later, in one transfer."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

import torch

from torchtriage.diagnosis.learning.limits import DEFAULT, LearningLimits
from torchtriage.errors import TriageError
from torchtriage.telemetry.gradients.health import (
    CLIP_NORM,
    GradientBounds,
    GradientHealthMetrics,
    GradientStats,
    GroupGradientStats,
    empty_rows,
    gradient_stats,
    rows_of_norms,
)
from torchtriage.telemetry.statistics.aten import AtenPlan, accumulator
from torchtriage.telemetry.statistics.columns import LARGE, NUM_STATS, SMALL, Stat, total, why_refused
from torchtriage.telemetry.statistics.plan import statistics

Parameters: TypeAlias = "torch.nn.Module | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]"
_P = ParamSpec("_P")
_R = TypeVar("_R")
# Health needs neither count; with limits that no element exceeds the kernel omits them.
_SMALL, _LARGE = 0.0, math.inf


def outside_graphs(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Keep Dynamo out of a function: a call from compiled code is one graph break, and never a recompile."""
    name = f"torchtriage.telemetry.{function.__name__}"
    reason = f"{name} reads tensors to the host; call it outside the compiled function"
    return cast(Callable[_P, _R], torch.compiler.disable(function, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurable:
    """A tensor that has statistics. For a sparse tensor: its values, and the number of zeros that it does not store."""

    name: str
    tensor: torch.Tensor
    num_absent: int = 0

    @property
    def num_elements(self) -> int:
        return int(self.tensor.numel()) + self.num_absent


def measurable(name: str, tensor: torch.Tensor) -> Measurable:
    if tensor.layout is not torch.sparse_coo:
        return Measurable(name=name, tensor=tensor)
    values = tensor.detach().coalesce().values()    # an index that occurs twice means the sum
    return Measurable(name=name, tensor=values, num_absent=tensor.numel() - values.numel())


def refuse(tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    """Raise an error that names the first tensor without statistics and the reason."""
    for name, tensor in zip(names, tensors, strict=True):
        if reason := why_refused(tensor):
            raise TriageError(f"no statistics of {name}: it {reason}")


def named_parameters(parameters: Parameters) -> list[tuple[str, torch.Tensor]]:
    """(name, parameter) in order, a shared parameter once; parameters without names are numbered."""
    if isinstance(parameters, torch.nn.Module):
        return list(parameters.named_parameters())
    if isinstance(parameters, torch.Tensor):    # iterating over it would split it into rows
        raise TypeError("parameters must be a module or an iterable of tensors, got one tensor; give [parameter]")
    by_id: dict[int, tuple[str, torch.Tensor]] = {}
    index: int
    item: Any
    for index, item in enumerate(parameters):
        name, parameter = item if isinstance(item, tuple) else (f"parameter {index}", item)
        if not isinstance(parameter, torch.Tensor):
            kind = type(parameter).__name__
            raise TypeError(f"parameters must be tensors or (name, tensor) pairs, got {kind}; give module.parameters()")
        by_id.setdefault(id(parameter), (name, parameter))
    return list(by_id.values())


def rows(items: Sequence[Measurable], *, small: float = SMALL, large: float = LARGE) -> Any:
    """float64 [P, S] on the host, in one transfer per device.

    A tensor without statistics raises an error with its name.
    """
    names = [item.name for item in items]
    table_PS = statistics([item.tensor for item in items], small=small, large=large, names=names)
    add_absent(table_PS, [item.num_absent for item in items], small)
    return table_PS


def add_absent(table_PS: Any, num_absent: Sequence[int], small: float) -> None:
    """Add the zeros that sparse tensors do not store to their rows."""
    for index, count in enumerate(num_absent):
        if count:
            table_PS[index] = total([table_PS[index], _zeros(count, small)])


def _zeros(count: int, small: float) -> list[float]:
    row_S = [0.0] * NUM_STATS
    row_S[Stat.NUM_ZERO] = row_S[Stat.NUM_ELEMENTS] = count
    row_S[Stat.NUM_SMALL] = count if small > 0 else 0
    return row_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Statistics, or only norms, of some of the tensors: an array if they are on the host, else a tensor on their
    device.
    """

    indices: list[int]
    values: Any

    def read(self) -> Any:
        values = self.values.numpy(force=True) if isinstance(self.values, torch.Tensor) else self.values
        return values if values.ndim == 2 else rows_of_norms(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGradients:
    """Statistics that may still be on their devices. It keeps no gradient alive."""

    parts: tuple[_Part, ...]
    num_elements: tuple[int, ...]
    num_absent: tuple[int, ...]
    groups: Mapping[str, list[int]]     # indices of the tensors of each group
    bounds: GradientBounds
    enhanced: bool

    @outside_graphs
    def materialize(self) -> GroupGradientStats:
        """Wait for the devices and read, in one transfer each."""
        table_PS = self.rows()
        groups = {}
        for name, indices in self.groups.items():
            groups[name] = gradient_stats(table_PS[indices], self.bounds, enhanced=self.enhanced)
        return GroupGradientStats(
            overall=gradient_stats(table_PS, self.bounds, enhanced=self.enhanced), groups=groups,
        )

    def rows(self) -> Any:
        """float64 [P, S].

        Unless `enhanced`, only norms, numbers of elements and whether a tensor is finite are valid.
        """
        table_PS = empty_rows(len(self.num_elements))
        for part in self.parts:
            table_PS[part.indices] = part.read()
        if self.enhanced:
            add_absent(table_PS, self.num_absent, _SMALL)
        table_PS[:, Stat.NUM_ELEMENTS] = self.num_elements
        return table_PS


class _Collector:
    """Measures the gradients of groups; keeps the buffers of a device for the next call."""

    def __init__(
        self, *, clip_norm: float = CLIP_NORM, enhanced: bool = False, limits: LearningLimits = DEFAULT,
    ) -> None:
        self.bounds = GradientBounds(clip_norm=clip_norm, limits=limits)
        self.enhanced = enhanced
        self._plans: dict[torch.device, tuple[object, AtenPlan | None]] = {}

    def _collect(self, groups: Mapping[str, Parameters]) -> PendingGradients:
        items: list[Measurable] = []
        index_of: dict[int, int] = {}
        members: dict[str, list[int]] = {}
        for group, parameters in groups.items():
            members[group] = []
            for name, parameter in named_parameters(parameters):
                if parameter.grad is None:
                    continue
                if id(parameter) not in index_of:
                    index_of[id(parameter)] = len(items)
                    items.append(measurable(f"the gradient of {name}", parameter.grad))
                members[group].append(index_of[id(parameter)])
        return PendingGradients(
            parts=tuple(self._parts(items)), num_elements=tuple(item.num_elements for item in items),
            num_absent=tuple(item.num_absent for item in items), groups=members, bounds=self.bounds,
            enhanced=self.enhanced,
        )

    def _parts(self, items: Sequence[Measurable]) -> Iterable[_Part]:
        by_device: dict[torch.device, list[int]] = {}
        for index, item in enumerate(items):
            by_device.setdefault(item.tensor.device, []).append(index)
        for device, indices in by_device.items():
            yield _Part(indices=indices, values=self._measure(device, [items[i] for i in indices]))

    def _measure(self, device: torch.device, items: list[Measurable]) -> Any:
        tensors, names = [item.tensor for item in items], [item.name for item in items]
        if _is_host(device):
            return statistics(tensors, names=names, small=_SMALL, large=_LARGE)
        kinds = [(type(tensor), tensor.layout, tensor.shape, tensor.dtype) for tensor in tensors]
        if device not in self._plans or self._plans[device][0] != kinds:
            refuse(tensors, names)
            self._plans[device] = kinds, AtenPlan(tensors, small=_SMALL, large=_LARGE) if self.enhanced else None
        plan = self._plans[device][1]
        with torch.no_grad():
            if plan is None:
                return torch.stack(_norms(tensors, accumulator(device)))
            return plan.run(tensors).clone()        # the plan overwrites its table the next time


def _norms(tensors: list[torch.Tensor], dtype: torch.dtype) -> Sequence[torch.Tensor]:
    """Norms with squares summed in `dtype`: in float32 squares of values above 1.8e19 overflow."""
    try:        # private; one launch for many tensors
        return cast(Sequence[torch.Tensor], torch._foreach_norm(tensors, 2, dtype=dtype))
    except AttributeError:
        return [torch.linalg.vector_norm(tensor, 2, dtype=dtype) for tensor in tensors]


def _is_host(device: torch.device) -> bool:
    return bool(device.type == "cpu")


class GroupGradientCollector(_Collector):
    """Collects the gradients of named parts of a model: `GroupGradientCollector({"actor": actor, "critic": critic})`.
    """

    def __init__(
        self, groups: Mapping[str, Parameters], *, clip_norm: float = CLIP_NORM, enhanced: bool = False,
        limits: LearningLimits = DEFAULT,
    ) -> None:
        super().__init__(clip_norm=clip_norm, enhanced=enhanced, limits=limits)
        # A module is listed again at each collection; an iterator such as module.parameters() can be read only once.
        self._groups: dict[str, Parameters] = {}
        for name, group in groups.items():
            self._groups[name] = group if isinstance(group, torch.nn.Module) else named_parameters(group)

    @outside_graphs
    def collect_async(self) -> PendingGradients:
        return self._collect(self._groups)

    @outside_graphs
    def collect(self) -> GroupGradientStats:
        return self.collect_async().materialize()


class GradientCollector(_Collector):
    """Collects the gradients of the parameters passed to each call.

    `SeedGradientCollector` is another name of this class.
    """

    @outside_graphs
    def collect_async(self, parameters: Parameters) -> PendingGradients:
        return self._collect({"seed": parameters})

    @outside_graphs
    def collect(self, parameters: Parameters) -> GradientStats:
        return materialize_grad_stats(self.collect_async(parameters))


SeedGradientCollector = GradientCollector


@outside_graphs
def materialize_grad_stats(pending: PendingGradients) -> GradientStats:
    """The result of `collect_async`, read in one transfer per device; GradientHealthMetrics if its collector is
    `enhanced`.
    """
    return gradient_stats(pending.rows(), pending.bounds, enhanced=pending.enhanced)


@overload
def collect_gradients(
    parameters: Parameters, *, return_enhanced: Literal[True], clip_norm: float = ..., limits: LearningLimits = ...,
) -> GradientHealthMetrics: ...
@overload
def collect_gradients(
    parameters: Parameters, *, return_enhanced: bool = False, clip_norm: float = ..., limits: LearningLimits = ...,
) -> GradientStats: ...
@outside_graphs
def collect_gradients(
    parameters: Parameters, *, return_enhanced: bool = False, clip_norm: float = CLIP_NORM,
    limits: LearningLimits = DEFAULT,
) -> GradientStats:
    """The gradient statistics of some parameters, once; a GradientCollector keeps its buffers for the next call.

    `collect_seed_gradients` is another name of this function.
    """
    return GradientCollector(clip_norm=clip_norm, enhanced=return_enhanced, limits=limits).collect(parameters)


collect_seed_gradients = collect_gradients


@outside_graphs
def global_grad_norm(module: Parameters) -> float | None:
    """The global gradient norm, summed in double; None if no parameter has a gradient.

    `compute_grad_norm_surrogate` is another name of this function.
    """
    stats = collect_gradients(module)
    return stats.gradient_norm if stats.num_tensors else None


compute_grad_norm_surrogate = global_grad_norm
