"""Gradients of several backward passes belong to one step: clearing them in between loses all but the last."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchtriage.telemetry.contract_checks.count import Count, is_readable

PATIENCE = 4            # steps in a row
MAX_LEAVES = 4          # trained tensors of one loss that are looked at, the smallest ones


@dataclass(slots=True)
class _Pass:
    leaves: list["weakref.ref[torch.Tensor]"]
    versions: list[int]     # of the weights


class LostGradients:
    """Looks at the beginning of each further backward pass of a step for the gradients of the pass before it.

    A change of weights in between is not accumulation: a second pass at other weights, as in sharpness-aware steps.
    """

    def __init__(self, count: Count) -> None:
        self._count = count
        self._last: _Pass | None = None
        self._num_passes = 0        # since the last step of any optimizer
        self._num_lost = 0

    def backward(self, leaves: Sequence[torch.Tensor]) -> None:
        """`leaves`: the tensors that this loss trains."""
        if self._last is not None and _is_lost(self._last):
            self._num_lost += 1
        self._num_passes += 1
        smallest = sorted(filter(is_readable, leaves), key=torch.Tensor.numel)[:MAX_LEAVES]
        self._last = _Pass([weakref.ref(leaf) for leaf in smallest], [leaf._version for leaf in smallest])

    def step_begins(self, step: int) -> None:
        """Of any optimizer: those that take turns clear the gradients that the losses of others left."""
        if self._num_passes:
            is_lost = 0 < self._num_lost == self._num_passes - 1
            self._count("TT443", is_lost, PATIENCE, step, value=float(self._num_passes), share=float(self._num_lost))
        self._last = None
        self._num_passes = self._num_lost = 0


def _is_lost(before: _Pass) -> bool:
    leaves = [leaf for ref in before.leaves if (leaf := ref()) is not None]
    if not leaves or [leaf._version for leaf in leaves] != before.versions:
        return False
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    if not all(map(is_readable, gradients)):
        return False
    return not any(bool(gradient.any()) for gradient in gradients)      # torchtriage: ignore[TT701] on the CPU
