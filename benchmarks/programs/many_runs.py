"""The demo's sick training, again and again in one process: many breaks, recompiles and limits."""

import sys

import torch

from torchtriage.demo.sick_policy import train

for _ in range(int(sys.argv[1])):
    torch.compiler.reset()
    train()
