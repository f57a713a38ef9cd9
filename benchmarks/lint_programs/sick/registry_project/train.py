"""Builds a model by name and compiles it."""

import torch
from registry import build


def main():
    model = build("top", width=4)
    step = torch.compile(model, backend="eager")
    for _ in range(3):
        step(torch.randn(3, 4))


main()
