"""Observations by the names of the agents that are alive."""

import torch


@torch.compile(backend="eager")
def total(observations):
    return sum(value.sum() for value in observations.values())


def alive(step):
    return [f"agent{i}" for i in range(1 + step)]


for step in range(5):
    total({name: torch.ones(2) for name in alive(step)})  # hazard: TT217
