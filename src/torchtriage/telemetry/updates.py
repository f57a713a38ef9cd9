"""How much one step changes the weights of a group: the norm of the change over that of the weights, on elements spread over each tensor.

N elements, G groups.
"""

from collections.abc import Sequence

import torch

from torchtriage.telemetry.tensors import is_dense

MAX_ELEMENTS = 65_536       # of a group; groups with fewer are measured whole
MIN_A_TENSOR = 64


class UpdateMeter:
    """For groups of parameters of one device; a copy of the chosen elements is kept from the start of a step to its end."""

    def __init__(self, groups: Sequence[Sequence[torch.Tensor]]) -> None:
        device = next((p.device for group in groups for p in group), torch.device("cpu"))
        self._picks: list[tuple[torch.Tensor, int, int]] = []       # parameter, elements, stride
        self._bounds = [0]
        for group in groups:
            dense = [p for p in group if p.numel() and is_dense(p)]
            all_elements = sum(p.numel() for p in dense)
            for p in dense:
                share = max(MIN_A_TENSOR, MAX_ELEMENTS * p.numel() // max(1, all_elements))
                stride = -(-p.numel() // share)
                self._picks.append((p, -(-p.numel() // stride), stride))
            self._bounds.append(sum(count for _, count, _ in self._picks))
        self._before_N = torch.zeros(self._bounds[-1], device=device)
        self._after_N = torch.zeros(self._bounds[-1], device=device)
        self._before_views, self._after_views = (
            list(flat.split([count for _, count, _ in self._picks])) if self._picks else [] for flat in (self._before_N, self._after_N)
        )
        self.norms_2G = torch.zeros(2, len(groups), device=device)      # of the change, of the weights
        self._has_before = False

    def begin(self) -> None:
        self._copy(self._before_views)
        self._has_before = True

    def end(self) -> bool:
        """Fill norms_2G; False if `begin` was not called before this step."""
        if not self._has_before:
            return False
        self._has_before = False
        self._copy(self._after_views)
        self._before_N.sub_(self._after_N)
        for number, (start, end) in enumerate(zip(self._bounds, self._bounds[1:], strict=False)):
            torch.linalg.vector_norm(self._before_N[start:end], out=self.norms_2G[0, number])
            torch.linalg.vector_norm(self._after_N[start:end], out=self.norms_2G[1, number])
        return True

    def _copy(self, into: list[torch.Tensor]) -> None:
        # The views are made anew each time: one that is kept would keep memory alive that the program may want back.
        if into:
            torch._foreach_copy_(into, [p.as_strided((count,), (stride,)) for p, count, stride in self._picks])
