"""Digests of the states of the random generators, which show whether two runs have drawn the same numbers."""

import random
import zlib
from typing import Any

from torchtriage.capture.torch_private.base import module


def digests() -> list[int]:
    """One per generator; 0 for a generator that this process has not loaded."""
    torch, cuda = module("torch"), module("torch.cuda")
    on_cuda = 0
    if cuda is not None and cuda.is_initialized():
        for state in cuda.get_rng_state_all():
            on_cuda = zlib.crc32(state.numpy().tobytes(), on_cuda)
    return [
        zlib.crc32(repr(random.getstate()).encode()), _of_numpy(),
        zlib.crc32(torch.random.get_rng_state().numpy().tobytes()), on_cuda,
    ]


def _of_numpy() -> int:
    numpy: Any = module("numpy.random")
    if numpy is None:
        return 0
    name, keys, *rest = numpy.get_state()
    return zlib.crc32(repr((name, rest)).encode(), zlib.crc32(keys.tobytes()))
