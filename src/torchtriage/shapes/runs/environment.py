"""The abilities of the torch of the runs."""

import functools
import subprocess
import sys

from torchtriage.proof.runs.surroundings import TIMEOUT_SECONDS, unobserved_environment
from torchtriage.shapes.policies import SOURCES

_PROGRAM = r"""
import torch
num_graphs = 0
def count(graph, inputs):
    global num_graphs
    num_graphs += 1
    return graph.forward
compiled = torch.compile(lambda x: x + 1, backend=count)
compiled(torch.ones(5, 3)), compiled(torch.ones(7, 3))
print(num_graphs)
"""


@functools.cache
def takes_dimensions(torch_version: str) -> bool:
    """Whether marking only the first dimension avoids the second graph; asked once per version of torch."""
    env = unobserved_environment() | {SOURCES: r"L\['x'\]$:0"}
    command = [sys.executable, "-c", _PROGRAM]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == "1"
