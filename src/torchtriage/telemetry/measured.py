"""Parameters and their gradients by name, made ready for statistics: each once, sparse ones too.   P tensors, S statistics."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import torch

from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics import LARGE, NUM_STATS, SMALL, Stat, statistics, total
from torchtriage.telemetry.tensors import why_refused

Parameters: TypeAlias = "torch.nn.Module | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]"
_P = ParamSpec("_P")
_R = TypeVar("_R")


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
