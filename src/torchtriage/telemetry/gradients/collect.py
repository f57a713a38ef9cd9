"""Collects gradients after backward and before clipping, without hooks; on a GPU what they are is read later, in one transfer."""

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
from torchtriage.telemetry.statistics.columns import why_refused
from torchtriage.telemetry.statistics.plan import LARGE, NUM_STATS, SMALL, Stat, statistics, total

Parameters: TypeAlias = "torch.nn.Module | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]"
_P = ParamSpec("_P")
_R = TypeVar("_R")
# Health needs neither count; limits that nothing is beyond let the kernel leave them out.
_SMALL, _LARGE = 0.0, math.inf


def outside_graphs(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Dynamo never looks inside: a call from compiled code is one graph break, and never a recompile."""
    reason = f"torchtriage.telemetry.{function.__name__} reads tensors to the host; call it outside of the compiled function"
    return cast(Callable[_P, _R], torch.compiler.disable(function, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurable:
    """A tensor that has statistics; of a sparse one the values, with the number of zeros that it does not hold."""

    name: str
    tensor: torch.Tensor
    num_absent: int = 0

    @property
    def num_elements(self) -> int:
        return int(self.tensor.numel()) + self.num_absent


def measurable(name: str, tensor: torch.Tensor) -> Measurable:
    if tensor.layout is not torch.sparse_coo:
        return Measurable(name=name, tensor=tensor)
    values = tensor.detach().coalesce().values()    # an index that occurs twice stands for the sum
    return Measurable(name=name, tensor=values, num_absent=tensor.numel() - values.numel())


def refuse(tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    """Raise, by its name, what is wrong with the first tensor that has no statistics."""
    for name, tensor in zip(names, tensors, strict=True):
        if reason := why_refused(tensor):
            raise TriageError(f"no statistics of {name}: it {reason}")


def named_parameters(parameters: Parameters) -> list[tuple[str, torch.Tensor]]:
    """(name, parameter) in order, one that is shared only once; without names they are called by their number."""
    if isinstance(parameters, torch.nn.Module):
        return list(parameters.named_parameters())
    if isinstance(parameters, torch.Tensor):    # else it would be taken apart into rows
        raise TypeError("parameters must be a module or an iterable of tensors, found one tensor; give [parameter]")
    seen: dict[int, tuple[str, torch.Tensor]] = {}
    index: int
    item: Any
    for index, item in enumerate(parameters):
        name, parameter = item if isinstance(item, tuple) else (f"parameter {index}", item)
        if not isinstance(parameter, torch.Tensor):
            found = type(parameter).__name__
            raise TypeError(f"parameters must be tensors or (name, tensor) pairs, found {found}; give module.parameters()")
        seen.setdefault(id(parameter), (name, parameter))
    return list(seen.values())


def rows(items: Sequence[Measurable], *, small: float = SMALL, large: float = LARGE) -> Any:
    """float64 [P, S] on the host; one transfer a device. A tensor that has no statistics is refused by name."""
    table_PS = statistics([item.tensor for item in items], small=small, large=large, names=[item.name for item in items])
    add_absent(table_PS, [item.num_absent for item in items], small)
    return table_PS


def add_absent(table_PS: Any, num_absent: Sequence[int], small: float) -> None:
    """Change the rows of sparse tensors to what they were if the zeros that they leave out were there."""
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
    """Of some of the tensors the statistics, or only the norms: an array if they are on the host, else a tensor on their device."""

    indices: list[int]
    values: Any

    def read(self) -> Any:
        values = self.values.numpy(force=True) if isinstance(self.values, torch.Tensor) else self.values
        return values if values.ndim == 2 else rows_of_norms(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGradients:
    """Statistics that may still be on their devices; holds on to no gradient."""

    parts: tuple[_Part, ...]
    num_elements: tuple[int, ...]
    num_absent: tuple[int, ...]
    groups: Mapping[str, list[int]]     # the indices of its tensors
    bounds: GradientBounds
    enhanced: bool

    @outside_graphs
    def materialize(self) -> GroupGradientStats:
        """Wait for the devices and read: one transfer each."""
        table_PS = self.rows()
        return GroupGradientStats(
            overall=gradient_stats(table_PS, self.bounds, enhanced=self.enhanced),
            groups={name: gradient_stats(table_PS[indices], self.bounds, enhanced=self.enhanced) for name, indices in self.groups.items()},
        )

    def rows(self) -> Any:
        """float64 [P, S]; if not `enhanced` only norms, elements and whether something is not finite can be relied on."""
        table_PS = empty_rows(len(self.num_elements))
        for part in self.parts:
            table_PS[part.indices] = part.read()
        if self.enhanced:
            add_absent(table_PS, self.num_absent, _SMALL)
        table_PS[:, Stat.NUM_ELEMENTS] = self.num_elements
        return table_PS


class _Collector:
    """Measures the gradients of any groups; keeps the buffers that a device needs from one time to the next."""

    def __init__(self, *, clip_norm: float = CLIP_NORM, enhanced: bool = False, limits: LearningLimits = DEFAULT) -> None:
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
            num_absent=tuple(item.num_absent for item in items), groups=members, bounds=self.bounds, enhanced=self.enhanced,
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
            # The plan writes into the same table the next time.
            return torch.stack(_norms(tensors, accumulator(device))) if plan is None else plan.run(tensors).clone()


def _norms(tensors: list[torch.Tensor], dtype: torch.dtype) -> Sequence[torch.Tensor]:
    """Squares summed in `dtype`: above 1.8e19 they overflow in float32, whichever function takes the norm."""
    try:
        return cast(Sequence[torch.Tensor], torch._foreach_norm(tensors, 2, dtype=dtype))       # private; one launch for many tensors
    except AttributeError:
        return [torch.linalg.vector_norm(tensor, 2, dtype=dtype) for tensor in tensors]


def _is_host(device: torch.device) -> bool:
    return bool(device.type == "cpu")


class GroupGradientCollector(_Collector):
    """The gradients of named parts of a model: `GroupGradientCollector({"actor": actor, "critic": critic})`."""

    def __init__(
        self, groups: Mapping[str, Parameters], *, clip_norm: float = CLIP_NORM, enhanced: bool = False, limits: LearningLimits = DEFAULT,
    ) -> None:
        super().__init__(clip_norm=clip_norm, enhanced=enhanced, limits=limits)
        # A module is asked anew each time for what it holds; module.parameters() can be asked only once.
        self._groups = {
            name: group if isinstance(group, torch.nn.Module) else named_parameters(group) for name, group in groups.items()
        }

    @outside_graphs
    def collect_async(self) -> PendingGradients:
        return self._collect(self._groups)

    @outside_graphs
    def collect(self) -> GroupGradientStats:
        return self.collect_async().materialize()


class SeedGradientCollector(_Collector):
    """The gradients of one part, given at every call."""

    @outside_graphs
    def collect_async(self, parameters: Parameters) -> PendingGradients:
        return self._collect({"seed": parameters})

    @outside_graphs
    def collect(self, parameters: Parameters) -> GradientStats:
        return materialize_grad_stats(self.collect_async(parameters))


@outside_graphs
def materialize_grad_stats(pending: PendingGradients) -> GradientStats:
    """What `collect_async` measured, read in one transfer a device; GradientHealthMetrics if its collector is `enhanced`."""
    return gradient_stats(pending.rows(), pending.bounds, enhanced=pending.enhanced)


@overload
def collect_seed_gradients(
    parameters: Parameters, *, return_enhanced: Literal[True], clip_norm: float = ..., limits: LearningLimits = ...,
) -> GradientHealthMetrics: ...
@overload
def collect_seed_gradients(
    parameters: Parameters, *, return_enhanced: bool = False, clip_norm: float = ..., limits: LearningLimits = ...,
) -> GradientStats: ...
@outside_graphs
def collect_seed_gradients(
    parameters: Parameters, *, return_enhanced: bool = False, clip_norm: float = CLIP_NORM, limits: LearningLimits = DEFAULT,
) -> GradientStats:
    """The gradients of one part, once; a SeedGradientCollector keeps its buffers for the next time."""
    return SeedGradientCollector(clip_norm=clip_norm, enhanced=return_enhanced, limits=limits).collect(parameters)


@outside_graphs
def compute_grad_norm_surrogate(module: Parameters) -> float | None:
    """The global gradient norm, summed in double; None if nothing has a gradient."""
    stats = collect_seed_gradients(module)
    return stats.gradient_norm if stats.num_tensors else None
