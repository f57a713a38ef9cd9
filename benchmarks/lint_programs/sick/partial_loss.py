"""Compiles a loss whose options are bound by functools.partial."""

import functools

import torch


def focal_loss(logits, target, *, gamma, verbose):
    p = logits.sigmoid()
    loss = ((1 - p) ** gamma * (logits - target).square()).mean()
    if verbose:
        print("focal", loss.shape)  # hazard: TT101
    return loss


criterion = torch.compile(functools.partial(focal_loss, gamma=2.0, verbose=True), backend="eager")
for _ in range(3):
    criterion(torch.randn(4), torch.rand(4))
