"""The calls that a comparison replays, with the sizes that vary over them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import VaryingSize
from torchtriage.shapes.functions.padding import map_tensors, named_arguments, tensors_in
from torchtriage.shapes.runs.sizes import MAX_VALUES

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
Inputs = Iterable[Any] | Callable[[], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Calls:
    """The arguments of every call; can be iterated any number of times."""

    names: Sequence[str]        # of the positional parameters
    source: Inputs

    def __iter__(self) -> Iterator[Arguments]:
        for item in self.source() if callable(self.source) else self.source:
            yield _arguments(item)

    def named(self, arguments: Arguments) -> list[tuple[str, Any]]:
        return named_arguments(self.names, *arguments)

    def marked(self, arguments: Arguments, dims: Mapping[str, Sequence[int]]) -> Arguments:
        """The same arguments with these dimensions marked dynamic, on aliases: the caller's tensors stay unmarked."""
        import torch

        def mark(name: str, tensor: Any) -> Any:
            if name not in dims:
                return tensor
            alias = tensor.detach().requires_grad_(tensor.requires_grad)
            for dim in dims[name]:
                torch._dynamo.maybe_mark_dynamic(alias, dim)
            return alias

        values = [map_tensors(value, name, mark) for name, value in self.named(arguments)]
        args, kwargs = arguments
        return tuple(values[:len(args)]), dict(zip(kwargs, values[len(args):], strict=True))


def _arguments(item: Any) -> Arguments:
    if isinstance(item, tuple):
        return item, {}
    if isinstance(item, Mapping) and all(isinstance(key, str) for key in item):
        return (), item
    return (item,), {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSizeCounts:
    """How often each size and number occurs over the calls; names are those of `tensors_in`."""

    num_calls: int
    values: Mapping[tuple[str, int | None], Counter[int]]

    def varying(self) -> dict[tuple[str, int | None], Counter[int]]:
        return {key: counts for key, counts in self.values.items() if len(counts) > 1}

    def dims(self) -> dict[str, list[int]]:
        """Tensor -> the dimensions that vary."""
        dims: dict[str, list[int]] = {}
        for name, dim in self.varying():
            if dim is not None:
                dims.setdefault(name, []).append(dim)
        return dims

    def as_study(self, function: Callable[..., Any], is_marked: bool) -> list[VaryingSize]:
        """The sizes that vary, the most varied first, by torch's names."""
        code = getattr(getattr(function, "forward", function), "__code__", None)
        path, line, function_name = "", None, getattr(function, "__name__", "")
        if code is not None:
            path, line, function_name = code.co_filename, code.co_firstlineno, code.co_name
        sizes = []
        for (name, dim), counts in self.varying().items():
            sizes.append(VaryingSize(
                path=path, line=line, function=function_name, source=_source(name), dim=dim,
                values={str(value): number for value, number in counts.most_common(MAX_VALUES)},
                num_values=len(counts), num_calls=counts.total(), is_marked=is_marked and dim is not None,
                why_not="a Python number cannot be marked" if dim is None else "",
            ))
        return sorted(sizes, key=lambda size: -size.num_values)


def sizes_of(calls: Calls) -> CallSizeCounts:
    """Count the sizes over all calls, without making the calls."""
    values: dict[tuple[str, int | None], Counter[int]] = {}
    num_calls = 0
    for arguments in calls:
        num_calls += 1
        for name, value in calls.named(arguments):
            if isinstance(value, int) and not isinstance(value, bool):
                values.setdefault((name, None), Counter())[value] += 1
            for path, tensor in tensors_in(value, name):
                for dim, size in enumerate(tensor.shape):
                    values.setdefault((path, dim), Counter())[size] += 1
    if not num_calls:
        raise TriageError(
            "inputs= contains no call; give argument tuples, or a function that returns an iterator of them "
            "(an iterator itself can be used only once)"
        )
    return CallSizeCounts(num_calls=num_calls, values=values)


def _source(name: str) -> str:
    """x -> L['x'], batch['mask'] -> L['batch']['mask']."""
    end = next((i for i, letter in enumerate(name) if letter in "[."), len(name))
    return f"L[{name[:end]!r}]{name[end:]}"
