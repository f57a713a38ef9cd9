"""Methods, hooks, closures, disabled parts and checkpoints in compiled code."""

import logging
import os
import pickle
import time

import torch
from common.compiling import compiled_loss, maybe_compile
from torch import nn
from torch.utils.checkpoint import checkpoint

log = logging.getLogger(__name__)


@torch.compiler.disable
def record(x):
    log.info("mean %.3f", x.mean().item())  # harmless


class Backbone(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(dim, dim), "b": nn.Linear(dim, dim)})
        self.order = ["a", "b"]
        self.verbose = False
        self.step = torch.compile(self._step, backend="eager")

    def _step(self, x):
        for name in self.order:  # harmless
            x = self.layers[name](x)
        if self.verbose:
            print("step", x.shape)  # harmless
        return self._finish(x)

    def _finish(self, x):
        log.warning("finish")  # hazard: TT102
        return x.relu()

    def forward(self, x):
        out = self.step(x)
        if out.isnan().any():  # harmless
            raise ValueError("NaN")
        return out


class Tower(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(dim, dim), Spy())
        self.deep = nn.ModuleList([nn.Linear(dim, dim) for _ in range(2)])

    def forward(self, x):
        x = self.inner(x)
        x = checkpoint(self._deep, x, use_reentrant=False)
        return x

    def _deep(self, x):
        for layer in self.deep:  # harmless
            x = layer(x)
        return x


class Spy(nn.Module):
    def forward(self, x):
        peak = x.abs().amax().item()  # hazard: TT104
        return x / peak


class Fallback(nn.Module):
    def forward(self, x):
        if torch.compiler.is_compiling():
            return x * 2
        print("eager")  # harmless
        return x * float(x.max())  # harmless


class Scripted(nn.Module):
    def forward(self, x):
        if torch.jit.is_scripting():
            print("scripting")  # harmless
        if not torch.jit.is_scripting() and x.requires_grad:  # harmless
            x = x * 1
        return x + 1


class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)
        self.spent = 0.0

    def forward(self, x):
        start = time.perf_counter()  # hazard: TT125
        y = self.net(x)
        record(y)  # hazard: TT108
        return y, start


@torch.compile(backend="eager", fullgraph=True)
def strict(x):
    y = x * 2
    if y.sum() < -1e9:  # hazard: TT308
        return y
    return y + 1


@torch.compile(backend="eager")
def env_scaled(x):
    if os.path.exists("/nonexistent"):  # hazard: TT106
        return x
    return x * 2


@torch.compile(backend="eager")
def stored(x):
    blob = pickle.dumps([1, 2])  # hazard: TT106
    return x * len(blob)


@torch.compile(backend="eager")
def marked(x):
    y = x * 2
    torch._dynamo.graph_break()  # hazard: TT120
    return y + 1


@torch.compile(backend="eager")
def grads(x):
    x.requires_grad_()  # hazard: TT110
    return (x * x).sum()


def double(x):
    print("double")  # hazard: TT101
    return x * 2


def triple(x):
    print("triple")  # harmless
    return x * 3


def main():
    torch.manual_seed(0)
    x = torch.rand(4, 8) + 0.1
    backbone = Backbone()
    tower = torch.compile(Tower(), backend="eager")
    fallback = torch.compile(Fallback(), backend="eager")
    scripted = torch.compile(Scripted(), backend="eager")
    timed = Timed()
    timed.compile(backend="eager")
    compiled_double = maybe_compile(double)
    loss = compiled_loss("l2")
    for step in range(2):
        backbone(x)
        tower(x)
        fallback(x)
        scripted(x)
        timed(x)
        compiled_double(x)
        triple(x)
        loss(x, x + 1)
        try:
            strict(x)
        except Exception as error:
            print(type(error).__name__)  # harmless
        env_scaled(x)
        stored(x)
        marked(x)
        grads(x.clone())
        with open(os.devnull, "w") as file:  # harmless
            file.write(str(x.mean().item()))  # harmless


if __name__ == "__main__":
    main()
