"""A factory of networks."""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.proj = nn.Linear(width, out)

    def forward(self, x):
        y = self.proj(x)
        assert y.isfinite().all(), f"bad output {y}"  # hazard: TT103
        return y


def make_net(config):
    layers = []
    for width in config["widths"]:
        layers += [nn.Linear(width, width), nn.ReLU()]
    layers.append(Head(config["widths"][-1], config["out"]))
    return nn.Sequential(*layers)
