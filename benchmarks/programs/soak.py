"""Trains and recompiles for as long as asked: `soak.py STEPS RECOMPILES MARKS SECONDS`.

At each mark it prints its steps, recompiles and resident memory as JSON.
"""

import json
import sys
import time

import torch

NUM_SIZES = 7       # recompiles of a function before Dynamo is reset: its recompile limit is 8


def resident_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


@torch.compile(backend="eager", dynamic=False)
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def recompile() -> int:
    """Compile the function once and NUM_SIZES times again; returns the number of recompiles."""
    torch._dynamo.reset()
    for size in range(2, NUM_SIZES + 3):
        doubled(torch.ones(size))
    return NUM_SIZES


def main(steps: int, recompiles: int, marks: int, seconds: float) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(4, 8)
    num_recompiles, marked, began = 0, 0, time.monotonic()
    for step in range(1, steps + 1):
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if num_recompiles * steps < step * recompiles:
            num_recompiles += recompile()
        is_last = step == steps or time.monotonic() - began > seconds
        if is_last or step * marks // steps > marked:
            marked = step * marks // steps
            values = {"steps": step, "recompiles": num_recompiles, "memory": resident_mb()}
            print(json.dumps(values | {"seconds": time.monotonic() - began}), flush=True)
        if is_last:
            return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), float(sys.argv[4]))
