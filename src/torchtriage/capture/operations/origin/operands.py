"""Statistics of the operands of an operation."""

import math
from typing import Any

from torchtriage.capture.operations.graphs.outcome import tensors
from torchtriage.recording.origins.origin import Operand

MAX_OPERANDS = 6


def is_plain(tensor: Any) -> bool:
    """Whether the values of a tensor can be read: it is dense, has memory, and is of no other class."""
    import torch

    is_tensor = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return is_tensor and tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_quantized


def is_finite(tensor: Any) -> bool:
    """Of a tensor without values, or one that cannot be read, nothing else is known: it counts as finite."""
    if not is_plain(tensor) or not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return True
    return bool(tensor.detach().isfinite().all())


def has_nan(tensor: Any) -> bool:
    return is_plain(tensor) and tensor.is_floating_point() and bool(tensor.detach().isnan().any())


def operand(tensor: Any, name: str = "") -> Operand:
    """The statistics of a tensor, in float64."""
    import torch

    form: dict[str, Any] = {
        "dtype": str(tensor.dtype).removeprefix("torch."), "shape": tuple(tensor.shape),
        "num_values": tensor.numel(), "name": name,
    }
    if not is_plain(tensor) or not tensor.numel():
        return Operand(**form)
    plain = tensor.detach()
    values = (torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain).double()
    finite = values[values.isfinite()]
    has_finite = bool(finite.numel())
    return Operand(
        **form, minimum=float(finite.min()) if has_finite else None,
        maximum=float(finite.max()) if has_finite else None,
        num_zero=int((values == 0).sum()), num_negative=int((finite < 0).sum()),
        num_nan=int(values.isnan().sum()), num_inf=int(values.isinf().sum()),
        num_negative_inf=int(values.isneginf().sum()),
    )


def number(value: float) -> Operand:
    value = float(value) if isinstance(value, bool) else value
    is_ordinary = math.isfinite(value)
    return Operand(
        dtype=type(value).__name__, minimum=float(value) if is_ordinary else None,
        maximum=float(value) if is_ordinary else None, num_zero=int(value == 0),
        num_negative=int(is_ordinary and value < 0), num_nan=int(math.isnan(value)), num_inf=int(math.isinf(value)),
        num_negative_inf=int(value == -math.inf),
    )


def numbers(values: Any) -> list[float]:
    """The numbers among the arguments of an operation; those in lists are sizes."""
    flat = [*values[0], *values[1].values()]
    return [value for value in flat if isinstance(value, int | float) and not isinstance(value, bool)]


def operands(given: list[Any], arguments: Any, names: dict[int, str]) -> tuple[Operand, ...]:
    """Of the tensors and the numbers; of a long list those with NaN or Inf first."""
    rows = [operand(tensor, names.get(id(tensor), "")) for tensor in given[:MAX_OPERANDS]]
    rows += [operand(tensor, names.get(id(tensor), "")) for tensor in given[MAX_OPERANDS:] if not is_finite(tensor)]
    found = [*rows, *map(number, numbers(arguments))]
    return tuple(found[:2 * MAX_OPERANDS])


def results(values: Any) -> tuple[Operand, ...]:
    found = list(tensors(values))
    bad = [tensor for tensor in found if not is_finite(tensor)]
    return tuple(operand(tensor) for tensor in (bad or found)[:MAX_OPERANDS])
