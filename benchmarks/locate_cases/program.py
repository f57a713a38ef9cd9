"""A small transformer step: `program.py FAULT` compiles it with that fault, `program.py BACKEND` without any."""

import sys
from pathlib import Path

import torch
from miscompile import EDITS, seeded
from torch import nn
from torch.nn import functional

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = torch.matmul(q, k.transpose(1, 2))     # dtype lowered
        scores = scores * 0.25                          # wrong constant
        mask = torch.tril(torch.ones(x.shape[1], x.shape[1]))       # wrong mask
        scores = scores.masked_fill(mask == 0, -1e9)
        scores = scores - scores.amax(-1, keepdim=True).detach()    # wrong dimension
        weights = scores.exp()
        return torch.matmul(weights / weights.sum(-1, keepdim=True), v)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.up, self.down = Attention(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("mean_size", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = functional.layer_norm(x, (x.shape[-1],), self.scale, None, 1e-5)    # wrong eps
        x = x + self.attention(normal)                  # dropped term
        self.mean_size.mul_(0.9)                        # missed in-place write
        hidden = functional.gelu(self.up(x))                     # sign
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        later = x[:, 1:]                                # off-by-one slice
        error = target - self.head(later)               # swapped operands
        return (error * error.sigmoid()).mean()


def line_of(fault: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"# {fault}"))


def main(fault: str, num_steps: int = 3) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backend = seeded(fault, line_of(fault)) if fault in EDITS else fault
    step = torch.compile(model, backend=backend)
    for _ in range(num_steps):
        loss = step(torch.randn(4, 8, 16), torch.randn(4, 7, 16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1])
