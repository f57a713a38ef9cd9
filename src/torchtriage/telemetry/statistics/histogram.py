"""Histogram of a tensor's magnitudes: 64 bins, one per power of two, the same for every tensor or step."""

from collections.abc import Sequence

import torch

NUM_BINS = 64
# Bin 1 is [2^-51, 2^-50). Bin 0 holds everything below, and zeros; the last bin everything from 2^11, and non-finite
# values.
FIRST_EXPONENT = -51


def exponent_histogram(tensor: torch.Tensor) -> torch.Tensor:
    """Counts by exponent of |x|, int64 [64] on the tensor's device; no host read."""
    flat_N = tensor.detach().reshape(-1)
    if flat_N.dtype in (torch.float16, torch.bfloat16):
        flat_N = flat_N.float()
    _, exponent_N = torch.frexp(flat_N)     # x = m * 2^e with m in [0.5, 1): |x| is in [2^(e-1), 2^e)
    bin_N = (exponent_N - FIRST_EXPONENT).clamp_(0, NUM_BINS - 1)
    bin_N = torch.where(flat_N == 0, 0, bin_N)
    bin_N = torch.where(torch.isfinite(flat_N), bin_N, NUM_BINS - 1).long()
    counts = torch.zeros(NUM_BINS, dtype=torch.int64, device=flat_N.device)
    return counts.index_add_(0, bin_N, torch.ones_like(bin_N))


def exponent_histograms(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The histograms of several tensors, read in one transfer."""
    if not tensors:
        return []
    rows: list[list[int]] = torch.stack([exponent_histogram(t).to(tensors[0].device) for t in tensors]).tolist()
    return rows
