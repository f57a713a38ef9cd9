"""flex_attention decoding over a cache that grows by pages, compiled with dynamic=False, on the CPU.

Best: dynamic=True, or the length marked. A flex kernel takes seconds to compile, and every page has another length. See
examples/flex_decode.py.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

HEADS, HEAD_SIZE, PAGE, NUM_PAGES, TOKENS = 4, 32, 64, 3, 64

offset = torch.zeros((), dtype=torch.int64)  # position of the query; a Python number would be a new kernel per token


def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    distance = q_idx + offset - kv_idx
    return torch.where(distance >= 0, score - 0.5 * distance, -float("inf"))


def decode(query_BHQD: Tensor, keys_BHKD: Tensor, values_BHKD: Tensor) -> Tensor:
    return flex_attention(query_BHQD, keys_BHKD, values_BHKD, score_mod=score_mod)


torch.set_num_threads(1)
attend = torch.compile(decode, dynamic=False)
generator = torch.Generator().manual_seed(0)
keys_BHKD = values_BHKD = torch.empty(1, HEADS, 0, HEAD_SIZE)
total = 0.0
with torch.no_grad():
    for position in range(NUM_PAGES * TOKENS):
        page, place = divmod(position, TOKENS)
        if place == 0:
            keys_BHKD, values_BHKD = (
                torch.cat((x, torch.zeros(1, HEADS, PAGE, HEAD_SIZE)), 2) for x in (keys_BHKD, values_BHKD)
            )
        query_BHQD, keys_BHKD[:, :, position], values_BHKD[:, :, position] = torch.randn(
            3, 1, HEADS, HEAD_SIZE, generator=generator
        )
        offset.fill_(position)
        total += attend(query_BHQD[:, :, None], keys_BHKD, values_BHKD).mean().item()
print(f"total {total:.4f}")
