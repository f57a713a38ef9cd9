"""Layers that the models of the project are made of."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

from common.norms import rms


class Norm(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return rms(x, self.weight)


class Gate(nn.Module):
    def __init__(self, dim, temperature=1.0):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.temperature = temperature
        self.extra = None

    def forward(self, x, mask=None):
        scores = self.proj(x) / self.temperature
        if mask is not None:  # harmless
            scores = scores.masked_fill(mask, 0.0)
        if self.training:  # harmless
            scores = scores + 0.01 * torch.randn_like(scores)
        if self.extra is not None:  # harmless
            scores = scores + self.extra
        if self.temperature > 0.5:  # harmless
            scores = scores.tanh()
        return x * scores.sigmoid()


class Stack(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Gate(dim) for _ in range(depth))
        self.norms = nn.ModuleList([Norm(dim) for _ in range(depth)])

    def forward(self, x):
        for block, norm in zip(self.blocks, self.norms):  # harmless
            x = block(norm(x))
        for index in range(len(self.blocks)):  # harmless
            if index % 2 == 0:  # harmless
                x = x + index
        return x


class Quantizer(nn.Module):
    def __init__(self, dim, bins=8):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-1, 1, bins))
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        flat = x.flatten()
        used = torch.unique(torch.bucketize(flat, self.edges))  # hazard: TT105
        return self.out(x) + used.numel()


class Checked(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        if not torch.compiler.is_compiling():
            warnings.warn("running eager")  # harmless
            if torch.isnan(x).any():  # harmless
                raise ValueError("NaN in the input")
        y = self.inner(x)
        if y.shape[0] > 4 and y.size(-1) != 3:  # harmless
            y = y * 2
        if isinstance(y, tuple):  # harmless
            y = y[0]
        return F.relu(y)


class Residual(nn.Module):
    """A wrapper whose subclass decides what is done."""

    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def branch(self, x):
        return self.linear(x)

    def forward(self, x):
        return x + self.branch(x)


class NoisyResidual(Residual):
    def branch(self, x):
        y = super().branch(x)
        print("branch", y.shape)  # hazard: TT101
        return y
