"""A project wraps torch.compile in a decorator of its own."""

import functools

import numpy as np
import torch

ENABLED = True


def maybe_compile(**options):
    def wrap(function):
        if not ENABLED:
            return function
        compiled = torch.compile(function, **options)

        @functools.wraps(function)
        def call(*args, **kwargs):
            return compiled(*args, **kwargs)

        return call

    return wrap


@maybe_compile(backend="eager")
def augment(image):
    shift = np.random.randint(0, 3)  # hazard: TT114
    return torch.roll(image, int(shift), dims=-1)


for _ in range(3):
    augment(torch.randn(1, 4, 4))
