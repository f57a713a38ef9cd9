"""Per-layer gradient statistics in a compiled function: a recompile per layer count, and a break at .tolist()."""

import sys

import torch
from torch import nn

CURED = "--cured" in sys.argv


def collect(model: nn.Module) -> torch.Tensor:
    stats = [torch.stack([p.norm(), p.mean(), p.min(), p.max()]) for _, p in model.named_parameters()]
    return torch.stack(stats)


@torch.compile(backend="eager")
def telemetry_in_the_graph(model: nn.Module) -> list:
    return collect(model).tolist()


def model_of(num_layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(num_layers)))


for num_layers in (1, 2, 3, 4, 5):
    model = model_of(num_layers)
    # The cure: statistics stay outside the compiled region, and are read once.
    rows = collect(model).tolist() if CURED else telemetry_in_the_graph(model)
    print(num_layers, "layers:", len(rows), "rows")
