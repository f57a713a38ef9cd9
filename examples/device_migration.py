"""Running statistics that move themselves to the input's device: a recompile on today's torch, not a break."""

import sys

import torch

CURED = "--cured" in sys.argv


class RunningMean:
    def __init__(self, device: str) -> None:
        self.mean = torch.zeros(4, device=device)

    def normalize(self, x: torch.Tensor) -> torch.Tensor:
        if x.device != self.mean.device:
            self.mean = self.mean.to(x.device)      # silent migration inside the compiled region
        return x - self.mean


# `meta` stands in for an accelerator, so that the example runs anywhere.
devices = ("meta", "meta", "meta") if CURED else ("cpu", "meta", "meta")
stats = RunningMean(devices[0])
normalize = torch.compile(stats.normalize, backend="eager")
for device in devices:
    normalize(torch.ones(2, 4, device=device))
print("statistics are on", stats.mean.device)
