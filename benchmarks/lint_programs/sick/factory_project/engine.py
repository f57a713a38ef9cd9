"""Compiles what a factory of another file makes."""

import torch
from nets import make_net


class Engine:
    def __init__(self, config):
        self.net = self.prepare(make_net(config))

    def prepare(self, net):
        return torch.compile(net, backend="eager") if torch.__version__ >= "2" else net

    def run(self, x):
        return self.net(x)


engine = Engine({"widths": [4, 4], "out": 2})
for _ in range(2):
    engine.run(torch.randn(2, 4))
