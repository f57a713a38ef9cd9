"""Adds up squares in the precision of the gradients, over one big copy."""

import torch
from torch import nn


def flat_max(model: nn.Module) -> torch.Tensor:
    grads = [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]
    everything = torch.cat(grads)  # hazard: TT703
    return everything.abs().max()


def total_norm(model: nn.Module) -> float:
    squares = torch.zeros(())
    for p in model.parameters():
        if p.grad is not None:
            squares += p.grad.pow(2).sum()  # hazard: TT704
    return squares.sqrt()
