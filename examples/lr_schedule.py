"""A compiled update with a scheduled learning rate: a Python number is a constant of its code, a tensor an input."""

import sys

import torch

CURED = "--cured" in sys.argv


@torch.compile(backend="eager")
def updated(weights: torch.Tensor, gradient: torch.Tensor, rate: "float | torch.Tensor") -> torch.Tensor:
    return weights - rate * gradient


torch.manual_seed(0)
weights = torch.zeros(8)
rate = torch.tensor(0.1)
for step in range(30):
    scheduled = 0.1 * 0.95 ** step
    rate.fill_(scheduled)           # a new value in the same tensor: nothing to compile
    x = torch.randn(16, 8)
    gradient = 2 * x.T @ (x @ weights - x.sum(1)) / len(x)
    weights = updated(weights, gradient, rate if CURED else scheduled)
print(f"weights {weights.mean().item():.3f}")
