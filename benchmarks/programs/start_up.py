"""Compiles several small models, forward and backward, and a few helpers: a start-up that mostly compiles."""

import sys
import time

import torch
from torch import nn

BACKEND = sys.argv[1]
COPIES = int(sys.argv[2])  # models of each kind; each has another width, so each compiles


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:  # noqa: N803 - batch, length, width
        q, k, v = self.qkv(self.norm(x_BLD)).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.size(-1) ** 0.5, dim=-1)
        return x_BLD + self.out(weights @ v)


class Gated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.gate(x)
        return x + self.down(torch.sigmoid(h) * h)


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width), nn.LayerNorm(width))


def policy_loss(new: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, clip: float) -> torch.Tensor:
    ratio = torch.exp((new - old).clamp(-20, 20))
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return -surrogate.mean() + 0.01 * (new.exp() * new).mean()


def main() -> None:
    torch.manual_seed(0)
    began = time.perf_counter()
    for copy in range(COPIES):
        width = 16 + 8 * copy
        torch.compiler.reset()  # otherwise the copies would share a frame and reach its recompile limit
        for model in (mlp(width), Gated(width), Attention(width)):
            compiled = torch.compile(model, backend=BACKEND, dynamic=False)
            for length in (4, 6):  # the second length is a recompile
                compiled(torch.randn(2, length, width)).square().mean().backward()
        loss = torch.compile(policy_loss, backend=BACKEND, dynamic=False)
        logits = torch.randn(32 + copy, requires_grad=True)
        loss(logits, torch.randn(32 + copy), torch.randn(32 + copy), 0.2).backward()
    print(time.perf_counter() - began)


main()
