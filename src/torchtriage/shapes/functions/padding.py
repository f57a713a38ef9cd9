"""Pads the tensor arguments of a call to a length; the result is cut back to the true length."""

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
        return [pair for i, item in enumerate(tree) for pair in tensors_in(item, f"{name}[{i}]")]
    if isinstance(tree, Mapping):
        return [pair for key, item in tree.items() for pair in tensors_in(item, f"{name}[{key!r}]")]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree)]
        return [pair for field in fields for pair in tensors_in(getattr(tree, field), f"{name}.{field}")]
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
        kind = type(tree)
        return kind(**changed) if dataclasses.is_dataclass(tree) else kind(changed)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree) if f.init]
        return dataclasses.replace(tree, **{
            field: map_tensors(getattr(tree, field), f"{name}.{field}", change) for field in fields
        })
    return tree


@dataclasses.dataclass(slots=True)
class Padding:
    """The arguments of a function that are padded, with their dimensions and padding values.

    Without `args` these are the tensors with the size of the first one in `dim`. That is decided on the first call with
    an argument: a weight that once has the same size by chance must not be padded on that call.
    """

    names: Sequence[str]                                    # of the positional parameters
    dim: int | Mapping[str, int]
    args: Sequence[str] | None = None
    pad: Any = 0                                            # a value, a callable, or argument name -> either of them
    out_dim: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None
    settled: dict[str, bool] = dataclasses.field(default_factory=dict)
    _is_named: bool = dataclasses.field(init=False)         # the user named the arguments to pad
    _dim_by_name: bool = dataclasses.field(init=False)      # read on every call, and isinstance(..., Mapping) is slow
    _pad_by_name: bool = dataclasses.field(init=False)
    _out_by_name: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._dim_by_name, self._pad_by_name = isinstance(self.dim, Mapping), isinstance(self.pad, Mapping)
        self._out_by_name = isinstance(self.out_dim, Mapping)
        self._is_named = self.args is not None or self._dim_by_name

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Named:
        named = named_arguments(self.names, args, kwargs)
        return [pair for name, value in named for pair in tensors_in(value, name)]

    def dims(self, args: Sequence[Any], kwargs: Mapping[str, Any], settle: bool = True) -> tuple[int, dict[str, int]]:
        """(the size before padding, argument to pad -> the dimension with that size)."""
        tensors = self.tensors(args, kwargs)
        with_dims = [(name, tensor, self._dim_of(name, tensor)) for name, tensor in tensors]
        candidates = [(name, tensor, dim) for name, tensor, dim in with_dims if dim is not None]
        if not candidates:
            shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in tensors) or "no tensor"
            raise TriageError(f"nothing to pad in {self._request()}: the call has {shapes}; "
                              "name the arguments with args= and dim=")
        first_name, first, first_dim = candidates[0]
        size = first.shape[first_dim]
        dims = {}
        for name, tensor, dim in candidates:
            if self._is_padded(name, tensor.shape[dim] == size, settle):
                if tensor.shape[dim] != size:
                    raise TriageError(
                        f"{name} is padded together with {first_name}, but has {tensor.shape[dim]} in dim {dim} where "
                        f"{first_name} has {size}; name the arguments that share the size, such as "
                        f"args=({first_name!r},)")
                dims[name] = dim
        return size, dims

    def _is_padded(self, name: str, fits: bool, settle: bool) -> bool:
        if self._is_named:
            return True     # only named arguments are candidates
        if settle:
            return self.settled.setdefault(name, fits)
        return self.settled.get(name, fits)

    def _dim_of(self, name: str, tensor: Any) -> int | None:
        """The dimension to pad, counted from the left; None if the tensor is not to be padded."""
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
            raise TriageError(f"{name} is to be padded in dim {dim}, but has the shape {tuple(tensor.shape)}; "
                              f"give dim={{{name!r}: ...}}")
        return None

    def _request(self) -> str:
        return f"args={tuple(self.args)!r}" if self.args is not None else f"dim={self.dim!r}"

    def padded(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], dims: Mapping[str, int], length: int,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, with those in `dims` padded to `length`; longer ones, as in a warm-up, are cut."""
        padded: list[tuple[Any, int, Any, Any]] = []

        def change(name: str, tensor: Any) -> Any:
            if name not in dims:
                return tensor
            dim, fill = dims[name], self.pad.get(name, 0) if self._pad_by_name else self.pad
            for other, other_dim, other_fill, fitted in padded:
                if other is tensor and other_dim == dim and other_fill is fill:
                    return fitted       # guards check identity: a tensor that is passed twice must stay one tensor
            padded.append((tensor, dim, fill, self._fit(name, tensor, dim, length, fill)))
            return padded[-1][-1]

        changed = [map_tensors(value, name, change) for name, value in named_arguments(self.names, args, kwargs)]
        return changed[:len(args)], dict(zip(kwargs, changed[len(args):], strict=True))

    def _fit(self, name: str, tensor: Any, dim: int, length: int, fill: Any) -> Any:
        if tensor.shape[dim] > length:
            tensor = tensor.narrow(dim, 0, length)
        if not callable(fill):
            return pad_end(tensor, dim, length, fill)
        fitted = fill(tensor, dim, length)
        if fitted.shape[dim] != length:
            raise TriageError(f"pad= returned {name} with length {fitted.shape[dim]} in dim {dim}, expected {length}; "
                              "it must return that length")
        return fitted

    def cut(self, result: Any, dims: Mapping[str, int], length: int, size: int) -> Any:
        """The result without padding: a tensor that is `length` long in its dimension is cut to `size`."""
        out_dim: Any = next(iter(dims.values())) if self.out_dim is None else self.out_dim
        if self._out_by_name:
            names = [name for name, _ in tensors_in(result, RESULT)]
            unknown = [name for name in out_dim if name not in names]
            if unknown:
                raise TriageError(f"out_dim= names {unknown[0]}, which the function did not return; "
                                  f"it returned {', '.join(names)}")

        def shorten(name: str, tensor: Any) -> Any:
            dims = out_dim.get(name, ()) if self._out_by_name else out_dim
            for dim in (dims,) if isinstance(dims, int) else dims:
                if -tensor.dim() <= dim < tensor.dim() and tensor.shape[dim] == length:
                    tensor = tensor.narrow(dim, 0, size)
            return tensor

        return map_tensors(result, RESULT, shorten)


def pad_end(tensor: Any, dim: int, length: int, value: Any) -> Any:
    """`tensor` followed by `value` up to `length`.

    A tensor that already has this length gets the strides of a padded one, because guards check strides.
    """
    import torch

    extra = length - tensor.shape[dim]
    if torch.compiler.is_compiling() or extra:      # in this order: testing a symbolic size adds a guard
        return torch.nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 1 - dim) + [0, extra], value=value)
    if tensor.stride() == _dense_strides(tensor.shape):
        return tensor
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))
