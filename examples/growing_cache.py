"""A decode loop over a growing cache: dynamic=False compiles every length up to the limit, then runs eager."""

import sys

import torch

CURED = "--cured" in sys.argv


def decode(query: torch.Tensor, cache: torch.Tensor, offset) -> torch.Tensor:
    scores = query @ cache.T + offset
    return torch.softmax(scores, -1) @ cache


attend = torch.compile(decode, backend="eager", dynamic=CURED)
query = torch.randn(1, 8)
offset = torch.zeros(())
for length in range(16, 48):
    cache = torch.randn(length, 8)
    offset.fill_(length)                    # a tensor's value may change; a Python number is a new constant
    attend(query, cache, offset if CURED else float(length))
print("decoded", 32, "tokens")
