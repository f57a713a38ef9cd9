"""Fixed random projections of tensors, from which the distance of two tensors in two processes is estimated."""

from collections.abc import Sequence
from typing import Any

NUM_PROJECTIONS = 4
PERIOD = 65_521         # elements of the fixed signs; a prime, so that no usual row length repeats with it
_SEED = 20_240_229


class Projector:
    """The norm and a few projections of a tensor, in float64.

    The signs depend on nothing but the position of an element, so that two processes use the same ones. The mean square
    of the differences of the projections is an unbiased estimate of the squared distance of the two tensors.
    """

    def __init__(self) -> None:
        self._signs: dict[Any, Any] = {}

    def row(self, tensor: Any) -> list[float]:
        """[norm, projections, the relative size of one rounding of its dtype]."""
        import torch

        epsilon = torch.finfo(tensor.dtype).eps if tensor.is_floating_point() or tensor.is_complex() else 0.0

        flat = tensor.detach()
        if hasattr(flat, "to_local"):
            flat = flat.to_local()
        if flat.layout is not torch.strided:
            flat = flat.to_dense()
        if flat.is_complex():
            flat = torch.view_as_real(flat)
        flat = flat.reshape(-1).to(torch.float64)
        signs = self._signs_on(flat.device)
        total = torch.zeros(NUM_PROJECTIONS, dtype=torch.float64, device=flat.device)
        square = torch.zeros((), dtype=torch.float64, device=flat.device)
        for number, begin in enumerate(range(0, flat.numel(), PERIOD)):
            part = flat[begin:begin + PERIOD]
            # Every period begins with another of the signs, so that equal changes of two periods do not cancel.
            total += (part @ signs[:part.numel()]) * signs[number % PERIOD]
            square += part @ part
        norm, *projections = torch.cat([square.sqrt().reshape(1), total]).tolist()
        return [norm, *projections, epsilon]

    def _signs_on(self, device: Any) -> Any:
        import torch

        if device not in self._signs:
            generator = torch.Generator().manual_seed(_SEED)
            signs = torch.randint(0, 2, (PERIOD, NUM_PROJECTIONS), generator=generator)
            self._signs[device] = (2 * signs - 1).to(torch.float64).to(device)
        return self._signs[device]


def loss_rows(tensors: Sequence[Any], projector: Projector) -> list[list[float]]:
    """[value, relative size of one rounding] of each tensor that backward() starts from.

    The value of one with several elements is its first projection.
    """
    rows = []
    for tensor in tensors:
        _, first, *_, epsilon = projector.row(tensor)
        value = float(tensor.detach().double()) if tensor.numel() == 1 else first
        rows.append([value, epsilon])
    return rows
