"""Layers that share one forward and differ in a Python number: each number is a constant, so each layer compiles."""

import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv
NUM_LAYERS = 12


class Layer(nn.Module):
    """Its output is scaled down with its depth."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.index = index
        self.register_buffer("scale", torch.tensor(1.0 / (1 + index)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # A buffer is an input of the compiled layer: all layers share one.
        return x + self.body(x) * (self.scale if CURED else 1.0 / (1 + self.index))


torch.manual_seed(0)
layers = nn.ModuleList(Layer(i) for i in range(NUM_LAYERS))
for layer in layers:
    layer.compile(backend="eager")
with torch.no_grad():
    x = torch.randn(4, 8)
    for layer in layers:
        x = layer(x)
print(f"mean {x.mean().item():.3f}")
