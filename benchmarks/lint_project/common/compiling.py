"""How the project compiles: a wrapper, a factory, a partial."""

import functools

import torch

fast = functools.partial(torch.compile, backend="eager")


def maybe_compile(function, enabled=True):
    if not enabled:  # harmless
        return function
    return torch.compile(function, backend="eager")


def compiled_loss(kind):
    def squared(prediction, target):
        error = prediction - target
        if error.abs().max() > 1e3:  # hazard: TT103
            error = error / 2
        return error.pow(2).mean()

    def absolute(prediction, target):
        return (prediction - target).abs().mean()

    return maybe_compile(squared if kind == "l2" else absolute)
