"""Pads the tensor arguments of a call to a length, and cuts what comes back to the true one."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.errors import TriageError

Named = list[tuple[str, Any]]       # the tensors of a call or of a result: "x", "batch['mask']", "result[0]"
RESULT = "result"


def named_arguments(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Each argument of a call with its name, given the names of the positional parameters."""
    beyond = [f"args[{i}]" for i in range(len(names), len(args))]
    return [*zip([*names[:len(args)], *beyond], args, strict=True), *kwargs.items()]


def tensors_in(tree: Any, name: str) -> Named:
    """Every tensor in nested tuples, lists, dicts and dataclasses, with the expression that reaches it."""
    import torch

    if isinstance(tree, torch.Tensor):
        return [(name, tree)]
    if isinstance(tree, tuple | list):
        return [found for i, item in enumerate(tree) for found in tensors_in(item, f"{name}[{i}]")]
    if isinstance(tree, Mapping):
        return [found for key, item in tree.items() for found in tensors_in(item, f"{name}[{key!r}]")]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [found for f in dataclasses.fields(tree) for found in tensors_in(getattr(tree, f.name), f"{name}.{f.name}")]
    return []


def map_tensors(tree: Any, name: str, change: Callable[[str, Any], Any]) -> Any:
    """The same tree with every tensor changed; the names are those of `tensors_in`."""
    import torch

    if isinstance(tree, torch.Tensor):
        return change(name, tree)
    if isinstance(tree, tuple | list):
        items = [map_tensors(item, f"{name}[{i}]", change) for i, item in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, Mapping):
        changed = {key: map_tensors(item, f"{name}[{key!r}]", change) for key, item in tree.items()}
        return type(tree)(**changed) if dataclasses.is_dataclass(tree) else type(tree)(changed)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return dataclasses.replace(tree, **{f.name: map_tensors(getattr(tree, f.name), f"{name}.{f.name}", change)
                                            for f in dataclasses.fields(tree) if f.init})
    return tree


@dataclasses.dataclass(slots=True)
class Padding:
    """Which arguments of a function are padded, where and with what.

    Without `args` these are the tensors that have the size of the first one in `dim`. That is settled when an argument is first seen:
    a weight that has the same size once, by chance, must not be padded on that one call.
    """

    names: Sequence[str]                                    # of the positional parameters
    dim: int | Mapping[str, int]
    args: Sequence[str] | None = None
    pad: Any = 0                                            # a value, a callable, or a mapping of an argument's name to either
    out_dim: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None
    settled: dict[str, bool] = dataclasses.field(default_factory=dict)
    _is_named: bool = dataclasses.field(init=False)         # which arguments are padded was said
    _dim_by_name: bool = dataclasses.field(init=False)      # asked on every call, and isinstance(..., Mapping) is slow
    _pad_by_name: bool = dataclasses.field(init=False)
    _out_by_name: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._dim_by_name, self._pad_by_name = isinstance(self.dim, Mapping), isinstance(self.pad, Mapping)
        self._out_by_name = isinstance(self.out_dim, Mapping)
        self._is_named = self.args is not None or self._dim_by_name

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Named:
        return [found for name, value in named_arguments(self.names, args, kwargs) for found in tensors_in(value, name)]

    def dims(self, args: Sequence[Any], kwargs: Mapping[str, Any], settle: bool = True) -> tuple[int, dict[str, int]]:
        """The size in question, and the dimension in which each argument that is padded has it."""
        tensors = self.tensors(args, kwargs)
        found = [(name, tensor, self._dim_of(name, tensor)) for name, tensor in tensors]
        candidates = [(name, tensor, dim) for name, tensor, dim in found if dim is not None]
        if not candidates:
            shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in tensors) or "no tensor"
            raise TriageError(f"nothing to pad in {self._wanted()}: the call has {shapes}; name the arguments with args= and dim=")
        first_name, first, first_dim = candidates[0]
        size = first.shape[first_dim]
        chosen = {}
        for name, tensor, dim in candidates:
            if self._is_padded(name, tensor.shape[dim] == size, settle):
                if tensor.shape[dim] != size:
                    raise TriageError(
                        f"{name} is padded together with {first_name}, but has {tensor.shape[dim]} in dim {dim} where {first_name} "
                        f"has {size}; name the arguments that share the size, such as args=({first_name!r},)")
                chosen[name] = dim
        return size, chosen

    def _is_padded(self, name: str, fits: bool, settle: bool) -> bool:
        if self._is_named:
            return True     # only those named are candidates
        if settle:
            return self.settled.setdefault(name, fits)
        return self.settled.get(name, fits)

    def _dim_of(self, name: str, tensor: Any) -> int | None:
        """The dimension in which a tensor may be padded, from the left; None if it is not among those asked for."""
        if self.args is not None and name not in self.args:
            return None
        dim: Any = self.dim
        if self._dim_by_name:
            dim = dim.get(name)
        if dim is None:
            return None
        if -tensor.dim() <= dim < tensor.dim():
            return int(dim % tensor.dim())
        if self._is_named:
            raise TriageError(f"{name} is to be padded in dim {dim}, but has the shape {tuple(tensor.shape)}; give dim={{{name!r}: ...}}")
        return None

    def _wanted(self) -> str:
        return f"args={tuple(self.args)!r}" if self.args is not None else f"dim={self.dim!r}"

    def padded(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], dims: Mapping[str, int], length: int,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with those in `dims` as long as `length`; longer ones, as a warm-up may have, are cut."""
        made: list[tuple[Any, int, Any, Any]] = []

        def change(name: str, tensor: Any) -> Any:
            if name not in dims:
                return tensor
            dim, fill = dims[name], self.pad.get(name, 0) if self._pad_by_name else self.pad
            for known, known_dim, known_fill, fitted in made:
                if known is tensor and known_dim == dim and known_fill is fill:
                    return fitted       # one tensor given twice stays one, as it does where nothing is padded: guards look at that
            made.append((tensor, dim, fill, self._fit(name, tensor, dim, length, fill)))
            return made[-1][-1]

        changed = [map_tensors(value, name, change) for name, value in named_arguments(self.names, args, kwargs)]
        return changed[:len(args)], dict(zip(kwargs, changed[len(args):], strict=True))

    def _fit(self, name: str, tensor: Any, dim: int, length: int, fill: Any) -> Any:
        if tensor.shape[dim] > length:
            tensor = tensor.narrow(dim, 0, length)
        if not callable(fill):
            return pad_end(tensor, dim, length, fill)
        made = fill(tensor, dim, length)
        if made.shape[dim] != length:
            raise TriageError(f"pad= made {name} {made.shape[dim]} long in dim {dim}, asked for {length}; it must return that length")
        return made

    def cut(self, result: Any, dims: Mapping[str, int], length: int, size: int) -> Any:
        """The result without what padding added: where a tensor is `length` long in its dimension, only `size` of it is kept."""
        out_dim: Any = next(iter(dims.values())) if self.out_dim is None else self.out_dim
        if self._out_by_name:
            found = [name for name, _ in tensors_in(result, RESULT)]
            unknown = [name for name in out_dim if name not in found]
            if unknown:
                raise TriageError(f"out_dim= names {unknown[0]}, which the function did not return; it returned {', '.join(found)}")

        def change(name: str, tensor: Any) -> Any:
            wanted = out_dim.get(name, ()) if self._out_by_name else out_dim
            for dim in (wanted,) if isinstance(wanted, int) else wanted:
                if -tensor.dim() <= dim < tensor.dim() and tensor.shape[dim] == length:
                    tensor = tensor.narrow(dim, 0, size)
            return tensor

        return map_tensors(result, RESULT, change)


def pad_end(tensor: Any, dim: int, length: int, value: Any) -> Any:
    """`tensor` with `value` behind it up to `length`; one that is as long already gets a padded one's strides, which guards look at."""
    import torch

    extra = length - tensor.shape[dim]
    if torch.compiler.is_compiling() or extra:      # in this order: a question about a symbolic size is a guard
        return torch.nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 1 - dim) + [0, extra], value=value)
    if tensor.stride() == _dense_strides(tensor.shape) or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))
