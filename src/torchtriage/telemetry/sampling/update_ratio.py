"""The update-to-weight ratio of a group: norm of the change over norm of the weights, on a subset of elements.

N elements, G groups.
"""

from collections.abc import Container, Sequence

import torch

from torchtriage.telemetry.sharding.dtensor import local
from torchtriage.telemetry.statistics.columns import is_dense

MAX_ELEMENTS = 16_384       # per group: norms are off by about half a percent; smaller groups are measured completely
MIN_PER_TENSOR = 64


class UpdateMeter:
    """Measures groups of parameters of one device; a copy of the selected elements is kept during the step.

    For a DTensor these are local elements. The selected share follows from the full tensor, so that all ranks select
    alike. Parameters in `left_out`, by id, are measured by another rank.
    """

    def __init__(self, groups: Sequence[Sequence[torch.Tensor]], left_out: Container[int] = ()) -> None:
        device = next((p.device for group in groups for p in group), torch.device("cpu"))
        self._picks: list[tuple[torch.Tensor, int, int]] = []       # parameter, elements, stride
        self._bounds = [0]
        for group in groups:
            dense = [p for p in group if p.numel() and is_dense(local(p))]
            all_elements = sum(p.numel() for p in dense)
            for p in dense:
                share = max(MIN_PER_TENSOR, MAX_ELEMENTS * p.numel() // max(1, all_elements))
                stride = -(-p.numel() // share)
                # An even stride may divide the row length and select a single column.
                stride += stride > 1 and stride % 2 == 0
                num_here = 0 if id(p) in left_out else local(p).numel()
                if num_here:
                    self._picks.append((p, -(-num_here // stride), stride))
            self._bounds.append(sum(count for _, count, _ in self._picks))
        # A selected element represents `stride` elements: without this weight, small tensors that are measured
        # completely
        # (a norm layer) would count too much.
        roots = [torch.full((count,), stride**0.5, device=device) for _, count, stride in self._picks]
        self._root_N = torch.cat(roots) if any(stride > 1 for _, _, stride in self._picks) else None
        self._before_N = torch.zeros(self._bounds[-1], device=device)
        self._after_N = torch.zeros(self._bounds[-1], device=device)
        counts = [count for _, count, _ in self._picks]
        self._before_views = list(self._before_N.split(counts)) if counts else []
        self._after_views = list(self._after_N.split(counts)) if counts else []
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
        if self._root_N is not None:
            self._before_N.mul_(self._root_N)
            self._after_N.mul_(self._root_N)
        for number, (start, end) in enumerate(zip(self._bounds, self._bounds[1:], strict=False)):
            torch.linalg.vector_norm(self._before_N[start:end], out=self.norms_2G[0, number])
            torch.linalg.vector_norm(self._after_N[start:end], out=self.norms_2G[1, number])
        return True

    def _copy(self, into: list[torch.Tensor]) -> None:
        # The views are made again each time: keeping one would keep memory alive that the program may release.
        if into:
            with torch.no_grad():
                views = [local(p).as_strided((count,), (stride,)) for p, count, stride in self._picks]
                torch._foreach_copy_(into, views)    # torchtriage: ignore[TT716] listed in CONTRIBUTING
