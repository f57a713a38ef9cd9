"""Calls that make torch compile again, and calls that only look like it."""

import contextlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MODES = ("mean", "sum", "total")
SCALES = [1.0, 0.5, 0.25, 0.12, 0.06]


class Layer(nn.Module):
    def __init__(self, layer_idx, dim=8):
        super().__init__()
        self.layer_idx = layer_idx
        self.mix = nn.Linear(dim, dim)

    @torch.compile(backend="eager")
    def forward(self, x):
        return x + self.mix(x) / (self.layer_idx + 1)  # hazard: TT207


class Layers(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(Layer(i) for i in range(depth))

    def forward(self, x):
        for layer in self.layers:  # harmless
            x = layer(x)
        return x


@torch.compile(backend="eager")
def scaled(x, phase):
    return x * SCALES[phase]


@torch.compile(backend="eager")
def reduced(x, mode):
    return x.mean() if mode == "mean" else x.sum()


@torch.compile(backend="eager")
def masked(x, mask=None):
    x = x + 1
    return x if mask is None else x * mask  # harmless


@torch.compile(backend="eager")
def summed(values):
    return torch.stack([v.norm() for v in values]).mean()


@torch.compile(backend="eager")
def total(x, values):
    for value in values.values():
        x = x + value
    return x


@torch.compile(backend="eager")
def dropped(x, p):
    return nn.functional.dropout(x, p)


@torch.compile(backend="eager")
def fixed(x, k: int, mode: str):
    return x.roll(k) if mode == "roll" else x  # harmless


def gate(a):
    return a.sigmoid() * a


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        fused = torch.compile(gate, backend="eager")  # hazard: TT309
        return fused(self.lin(x))


class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.fused = torch.compile(gate, backend="eager")  # harmless

    def forward(self, x):
        return self.fused(self.lin(x))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def encode(self, x):
        return self.lin(x)

    def forward(self, x):
        return self.encode(x).mean()


def flips(x):
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    compiled = torch.compile(net, backend="eager")
    for step in range(4):
        compiled.train()  # hazard: TT208
        compiled(x).sum().backward()
        compiled.eval()
        compiled(x)


def teachers(x):
    encoder = nn.Linear(8, 8)
    encode = torch.compile(encoder, backend="eager")
    for _ in range(3):
        with torch.no_grad():
            goal = encode(x)  # hazard: TT209
        (encode(x) - goal).pow(2).mean().backward()


def mixed_precision(x):
    net = torch.compile(nn.Linear(8, 8), backend="eager")
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16) if step % 2 else contextlib.nullcontext():
            net(x)  # hazard: TT210


def precise(x):
    net = torch.compile(nn.Linear(8, 8), backend="eager")
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):  # harmless
            net(x)


def ragged():
    loader = DataLoader(TensorDataset(torch.randn(50, 8)), batch_size=16)
    net = torch.compile(nn.Linear(8, 3), backend="eager", dynamic=False)  # hazard: TT203
    for epoch in range(2):
        for (batch,) in loader:
            net(batch)


def even():
    loader = DataLoader(TensorDataset(torch.randn(50, 8)), batch_size=16, drop_last=True)
    net = torch.compile(nn.Linear(8, 3), backend="eager", dynamic=False)  # harmless
    for (batch,) in loader:
        net(batch)


def forgotten(x):
    net = nn.Linear(8, 8)
    torch.compile(net, backend="eager")  # hazard: TT303
    return net(x)


def wrong_entry(x):
    model = torch.compile(Embedder(), backend="eager")
    return model.encode(x)  # hazard: TT303


def bypassed(x):
    model = nn.Linear(8, 8)
    compiled = torch.compile(model, backend="eager")  # hazard: TT310
    for _ in range(3):
        compiled(x).sum().backward()
        model(x)


def validated(x):
    model = nn.Linear(8, 8)
    compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        compiled(x).sum().backward()
    return model.state_dict(), model(x)  # harmless


def loops(x):
    for step in range(8):
        compiled = torch.compile(lambda a: a * 2, backend="eager")  # hazard: TT309
        compiled(x)


def main():
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    layers = Layers()
    layers(x)
    for phase in range(5):
        scaled(x, phase)  # hazard: TT204
        fixed(x, 2, "roll")  # harmless
    for mode in MODES:
        reduced(x, mode)  # hazard: TT224
    masked(x)
    masked(x, torch.ones(4, 8))  # hazard: TT218
    for count in range(1, 5):
        summed([x for _ in range(count)])  # hazard: TT217
    for i in range(4):
        total(x, {f"agent{i}": x})  # hazard: TT216
    for p in (0.1, 0.2, 0.3, 0.4, 0.5):
        dropped(x, p)  # hazard: TT205
    gated, once = Gated(), Once()
    for _ in range(8):
        gated(x)
        once(x)
    flips(x)
    teachers(x)
    mixed_precision(x)
    precise(x)
    ragged()
    even()
    forgotten(x)
    wrong_entry(x)
    bypassed(x)
    validated(x)
    loops(x)


if __name__ == "__main__":
    main()
