"""Each model of a list is compiled once."""

import torch
from torch import nn

models = [nn.Linear(3, 3) for _ in range(3)]
compiled = []
for model in models:
    compiled.append(torch.compile(model, backend="eager"))
for step in range(3):
    for model in compiled:
        model(torch.ones(2, 3))
