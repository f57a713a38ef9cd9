"""How a check reports one observation of its contract, from tensors that may be read without waiting."""

from typing import Protocol

import torch


class Count(Protocol):
    """Counts observations in a row in which a contract does not hold; the contract is broken after `patience` of them.

    `key` distinguishes several streaks of one rule.
    """

    def __call__(
        self, code: str, is_broken: bool, patience: int, step: int, *, key: str = "", name: str = "",
        value: float | None = None, share: float | None = None,
    ) -> None: ...


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one on the CPU: reading another one would wait, or is not defined."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cpu and tensor.layout is torch.strided
