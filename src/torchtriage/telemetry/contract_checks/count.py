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
    """Whether a tensor is an ordinary one on the CPU: reading another one would wait, or is not defined.

    FSDP takes the memory from a parameter after its use: reading it then ends the process.
    """
    is_ordinary = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return is_ordinary and tensor.is_cpu and (tensor.untyped_storage().nbytes() > 0 or tensor.numel() == 0)
