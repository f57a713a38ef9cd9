"""Scales observations by their running mean and variance."""

import torch
from torch import nn


class RunningScale(nn.Module):
    def __init__(self, width: int, epsilon: float = 1e-4) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("count", torch.tensor(epsilon))

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> None:
        # Best made on the device of the data: moving cuts a compiled graph.
        if x.device != self.mean.device:
            self.to(x.device)
        delta = x.mean(0) - self.mean
        total = self.count + x.shape[0]
        self.mean.add_(delta * x.shape[0] / total)
        self.var.mul_(self.count).add_(x.var(0, correction=0) * x.shape[0]).div_(total)
        self.count.copy_(total)

    def normalize(self, x: torch.Tensor, clip: float = 10.0) -> torch.Tensor:
        if x.device != self.mean.device:
            self.to(x.device)
        return ((x - self.mean) / torch.sqrt(self.var + 1e-8)).clamp(-clip, clip)
