"""Gradient statistics inside a function compiled with fullgraph=True, without a graph break or a host read."""

import sys

import torch

from torchtriage.telemetry import Stat, new_statistics_ring, record_statistics

NUM_STEPS = 20


def loss_of(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    prediction = torch.tanh(x @ weights["hidden"] + weights["bias"]) @ weights["head"]
    return (prediction - y).pow(2).mean()


def main() -> None:
    torch.manual_seed(0)
    weights = {"hidden": 0.3 * torch.randn(8, 32), "bias": torch.zeros(32), "head": 0.2 * torch.randn(32, 1)}
    target = torch.randn(8, 1)
    ring = new_statistics_ring(list(weights.values()), length=NUM_STEPS)    # [steps, tensors, statistics]
    step = torch.zeros((), dtype=torch.int64)                               # a Python number would recompile

    @torch.compile(fullgraph=True, backend="inductor" if "--inductor" in sys.argv else "eager")
    def train_step(weights: dict[str, torch.Tensor], x: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        gradients, loss = torch.func.grad_and_value(loss_of)(weights, x, x @ target)
        record_statistics(list(gradients.values()), ring, step)
        step.add_(1)
        return {name: weight - 0.05 * gradients[name] for name, weight in weights.items()}, loss

    for _ in range(NUM_STEPS):
        weights, loss = train_step(weights, torch.randn(64, 8))

    print(f"loss {loss.item():.3f} after {int(step)} steps; gradient norms of the first and the last step:")
    for name, first, last in zip(weights, ring[0, :, Stat.NORM], ring[-1, :, Stat.NORM], strict=True):
        print(f"{name:>8} {first:8.4f} {last:8.4f}")


if __name__ == "__main__":
    main()
