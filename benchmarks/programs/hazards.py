"""Small training loops with common hazards, on the eager backend.

python hazards.py NAME STEPS runs one of them.
"""

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

compile_ = partial(torch.compile, backend="eager")
log = logging.getLogger("train")


def train(steps: int, loss_at: Callable[[int], Tensor], parameters: list[nn.Parameter]) -> None:
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss_at(step).backward()
        optimizer.step()


def breaks(steps: int) -> None:
    """print, a branch on data, .item()."""
    net = nn.Linear(8, 8)

    @compile_
    def loss(x: Tensor) -> Tensor:
        y = net(x)
        print(end="")
        if y.abs().max() > 100:
            y = y.clamp(-100, 100)
        return y.square().mean() / (1.0 + y.std().item())

    train(steps, lambda _: loss(torch.randn(4, 8)), list(net.parameters()))


def library_calls(steps: int) -> None:
    """logging, a warning, a deepcopy, a function that must not be compiled."""
    net = nn.Linear(8, 8)

    @torch.compiler.disable
    def remember(y: Tensor) -> Tensor:
        return y.detach().clone()

    @compile_
    def loss(x: Tensor, options: dict[str, list[int]]) -> Tensor:
        y = net(x)
        log.debug("forward")
        options = copy.deepcopy(options)
        remember(y)
        warnings.warn("old API", stacklevel=2)
        return y.square().mean() * len(options["a"])

    warnings.simplefilter("ignore")
    train(steps, lambda _: loss(torch.randn(4, 8), {"a": [1, 2]}), list(net.parameters()))


def storm(steps: int) -> None:
    """Ragged batches under dynamic=False: the recompile limit."""
    net = nn.Linear(8, 8)
    forward = compile_(net, dynamic=False)
    train(steps, lambda step: forward(torch.randn(8 + step % 20, 8)).square().mean(), list(net.parameters()))


def settles(steps: int) -> None:
    """Two batch sizes, and a last batch of one: automatic dynamic shapes settle."""
    net = nn.Linear(8, 8)
    forward = compile_(net)
    sizes = (16, 16, 12, 16, 1)
    train(steps, lambda step: forward(torch.randn(sizes[step % 5], 8)).square().mean(), list(net.parameters()))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.num_calls = 0

    def forward(self, x: Tensor, scale: float) -> Tensor:
        self.num_calls += 1
        return self.body(x) * scale


def counters(steps: int) -> None:
    """An int on a module that grows, and a float argument that decays."""
    net = Counting()
    forward = compile_(net)

    @compile_
    def decayed(x: Tensor, rate: float) -> Tensor:
        return x.square().mean() * rate

    train(steps, lambda step: decayed(forward(torch.randn(4, 8), 2.0), 0.999**step), list(net.parameters()))


def evaluates(steps: int) -> None:
    """train / eval and no_grad flips every ten steps, autocast every seven."""
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))
    forward = compile_(net)

    def loss_at(step: int) -> Tensor:
        if step % 10 == 9:
            net.eval()
            with torch.no_grad():
                forward(torch.randn(4, 8))
            net.train()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 7 == 6):
            return forward(torch.randn(4, 8)).float().square().mean()

    train(steps, loss_at, list(net.parameters()))


class Block(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.body = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) * self.index


def layers(steps: int) -> None:
    """Twelve layers compiled one by one, each with its index as a constant."""
    blocks = nn.ModuleList(Block(i) for i in range(12))
    for block in blocks:
        block.compile(backend="eager")

    def loss_at(step: int) -> Tensor:
        x = torch.randn(4, 8)
        for block in blocks:
            x = block(x)
        return x.square().mean()

    train(steps, loss_at, list(blocks.parameters()))


def containers(steps: int) -> None:
    """A list whose length changes, a dict with other keys, an argument that is sometimes None."""
    net = nn.Linear(8, 8)

    @compile_
    def loss(pieces: list[Tensor], extra: dict[str, Tensor], mask: Tensor | None) -> Tensor:
        total = sum(net(piece).square().mean() for piece in pieces)
        for value in extra.values():
            total = total + value.mean()
        return total if mask is None else total * mask.mean()

    def loss_at(step: int) -> Tensor:
        extra = {f"key{step % 3}": torch.ones(2)}
        return loss([torch.randn(4, 8)] * (1 + step % 4), extra, None if step % 2 else torch.ones(4))

    train(steps, loss_at, list(net.parameters()))


def identities(steps: int) -> None:
    """A fresh lambda per step, another dtype every fifth step, a non-contiguous input every third."""
    net = nn.Linear(8, 8)

    @compile_
    def loss(x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        return activation(net(x.float())).square().mean()

    def loss_at(step: int) -> Tensor:
        x = torch.randn(8, 8, dtype=torch.float64 if step % 5 == 4 else torch.float32)
        return loss(x.t() if step % 3 == 2 else x, lambda y: y * 2)

    train(steps, loss_at, list(net.parameters()))


def uncuttable(steps: int) -> None:
    """A break inside a loop and inside try: the entire frame runs eager; and a generator that is compiled."""
    net = nn.Linear(8, 8)

    @compile_
    def looped(x: Tensor) -> Tensor:
        for _ in range(2):
            x = x * (1 + x.sum().item())
        return x

    @compile_
    def tried(x: Tensor) -> Tensor:
        try:
            print(end="")
            return net(x)
        finally:
            x = x + 1

    @compile_
    def pieces(x: Tensor) -> Iterator[Tensor]:
        yield x * 2

    train(
        steps,
        lambda _: looped(tried(next(iter(pieces(torch.randn(4, 8))))) * 1e-3).square().mean(),
        list(net.parameters()),
    )


def compiled_step(steps: int) -> None:
    """The optimizer's step is compiled, with a scheduled learning rate."""
    net = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)

    @compile_
    def update() -> None:
        optimizer.step()

    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(4, 8)).square().mean().backward()
        update()
        schedule.step()


def rare(steps: int) -> None:
    """A new constant every 25 steps, under a limit that never stops it."""
    torch._dynamo.config.recompile_limit = 1_000
    net = nn.Linear(8, 8)

    @compile_
    def loss(x: Tensor, phase: str) -> Tensor:
        return net(x).square().mean() * len(phase)

    train(steps, lambda step: loss(torch.randn(4, 8), f"phase {step // 25}"), list(net.parameters()))


def late(steps: int) -> None:
    """A second function is first compiled at step 35; the first one gets a new size, then none for long."""
    net = nn.Linear(8, 8)
    forward = compile_(net, dynamic=False)
    auxiliary = compile_(lambda y: y.abs().mean() if y.sum() > 0 else y.square().mean())

    def loss_at(step: int) -> Tensor:
        y = forward(torch.randn(4 + (step in (20, 40)), 8))
        return auxiliary(y) if step >= 35 else y.square().mean()

    train(steps, loss_at, list(net.parameters()))


PROGRAMS = (
    breaks,
    library_calls,
    storm,
    settles,
    counters,
    evaluates,
    layers,
    containers,
    identities,
    uncuttable,
    compiled_step,
    rare,
    late,
)

if __name__ == "__main__":
    torch.manual_seed(0)
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]](int(sys.argv[2]))
