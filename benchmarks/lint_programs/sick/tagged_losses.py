"""Each step has its own tag."""

import torch


@torch.compile(backend="eager")
def reduce(values, tag):
    return {tag + "/mean": values.mean(), tag + "/max": values.max()}


def run(steps):
    book = []
    for i in range(steps):
        tag = f"step_{i:04d}"
        book.append(reduce(torch.randn(5), tag))  # hazard: TT224
    return book


run(6)
