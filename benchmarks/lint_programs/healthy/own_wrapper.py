"""A wrapper of the project around torch.compile, on clean code."""

import functools

import torch


def fast(function=None, **options):
    if function is None:
        return functools.partial(fast, **options)
    return torch.compile(function, **options)


@fast(backend="eager")
def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


for _ in range(3):
    gelu(torch.randn(4))
