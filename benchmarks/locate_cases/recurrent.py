"""A recurrent tagger with batch norm, dropout, attention and a buffer; `recurrent.py FAULT` compiles it wrongly."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from miscompile import Edit, edited, name
from torch import nn
from torch.nn import functional

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self, num_inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(num_inputs + width, 3 * width)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        i, f, g = self.gates(torch.cat([x, h], -1)).chunk(3, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()    # wrong gate
        c = c.clamp(-0.5, 0.5)                          # wrong bound
        return c.tanh(), c


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm, self.drop = Cell(8, 12), nn.BatchNorm1d(12), nn.Dropout(0.25)
        self.query, self.out = nn.Linear(12, 12), nn.Linear(12, 5)
        self.register_buffer("usage", torch.zeros(5))

    def forward(self, x: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], 12)
        c, outputs = torch.zeros_like(h), []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], h, c)
            outputs.append(h)
        sequence = torch.stack(outputs, 1)
        mean, variance = self.norm.running_mean, self.norm.running_var
        flat = functional.batch_norm(sequence.flatten(0, 1), mean, variance, None, None, True, 0.1)    # wrong momentum
        flat = self.drop(flat).view_as(sequence)
        attended = functional.scaled_dot_product_attention(self.query(flat), flat, flat, is_causal=True)    # not causal
        shares = self.out(attended).softmax(-1)         # softmax dimension
        chosen = shares.gather(-1, tags[..., None])     # wrong index
        self.usage += shares.detach().mean((0, 1))      # doubled write
        scale = torch.arange(x.shape[1]).float() / 7    # wrong divisor
        return (-(chosen.squeeze(-1) + 1e-6).log() * scale).mean()


def wrong_gate(graph: Any, node: Any) -> None:
    if name(node) == "sigmoid":
        node.target = "tanh"


def wrong_bound(graph: Any, node: Any) -> None:
    if name(node) == "clamp":
        node.args = (node.args[0], -0.4, 0.5)


def wrong_momentum(graph: Any, node: Any) -> None:
    if name(node) == "batch_norm":
        node.args = (*node.args[:6], 0.2, *node.args[7:])


def not_causal(graph: Any, node: Any) -> None:
    if "scaled_dot" in name(node):
        node.kwargs = {**node.kwargs, "is_causal": False}


def softmax_dimension(graph: Any, node: Any) -> None:
    if name(node) == "softmax":
        node.args = (node.args[0], 1)


def wrong_index(graph: Any, node: Any) -> None:
    if name(node) == "gather":
        with graph.inserting_before(node):
            moved = graph.call_method("roll", (node.args[2], 1, 0))
        node.args = (*node.args[:2], moved)


def doubled_write(graph: Any, node: Any) -> None:
    if name(node) == "iadd":
        with graph.inserting_before(node):
            double = graph.call_method("mul", (node.args[1], 2))
        node.args = (node.args[0], double)


def wrong_divisor(graph: Any, node: Any) -> None:
    if name(node) == "truediv":
        node.args = (node.args[0], 7.01)


EDITS: dict[str, Edit] = {
    "wrong gate": wrong_gate, "wrong bound": wrong_bound, "wrong momentum": wrong_momentum, "not causal": not_causal,
    "softmax dimension": softmax_dimension, "wrong index": wrong_index, "doubled write": doubled_write,
    "wrong divisor": wrong_divisor,
}


def main(fault: str, num_steps: int = 3) -> None:
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if text.endswith(f"# {fault}"))

    def backend(graph: Any, _: Sequence[Any]) -> Any:
        return edited(graph, line, EDITS[fault]).forward

    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(model, backend=backend)
    for _ in range(num_steps):
        loss = step(torch.randn(4, 5, 8), torch.randint(0, 5, (4, 5)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1])
