"""Asks torch itself whether an entry of TORCH_COMPILE_DYNAMIC_SOURCES may name a dimension: 2.9 ignores such an entry without a word."""

import functools
import os
import subprocess
import sys

from torchtriage.launch import environment
from torchtriage.shapes.policies import SOURCES

_TIMEOUT_SECONDS = 300      # importing torch from a cold disk takes a minute
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
    """Whether the first dimension, marked alone, spares the second graph; asked once for a version of torch."""
    env = {name: value for name, value in os.environ.items() if name not in (environment.FOLDER, environment.POLICY)}
    env[SOURCES] = r"L\['x'\]$:0"
    try:
        done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == "1"
