"""Which parameters a Monitor of the program's own looks at, so that `torchtriage run` does not record them a second time."""

import weakref
from collections.abc import Iterable
from typing import Protocol

import torch


class Claim(Protocol):
    def holds(self, parameters: Iterable[torch.Tensor]) -> bool: ...


claims: "weakref.WeakSet[Claim]" = weakref.WeakSet()


def is_claimed(parameters: Iterable[torch.Tensor]) -> bool:
    listed = list(parameters)
    return any(claim.holds(listed) for claim in list(claims))
