"""The LSTM of rl relative to nn.LSTM: forward and backward, one policy step, and the compile time of a training step.

One thread, in processor seconds of that thread, variants in turn. Compile time is the wall time of a separate process
with an empty cache.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

import torch
from common import Spread, clean_environment, in_turn, machine, ratios, run, save, table
from torch import Tensor, nn

from torchtriage.rl.policy import lstm_native
from torchtriage.rl.policy.lstm import Lstm

HIDDEN = 64
SIZES = ((32, 8), (128, 64))  # steps, sequences: CartPole's settings, and a large rollout
THEIRS = "nn.LSTM"


def variants_of(steps: int, sequences: int) -> dict[str, Callable[[], Tensor]]:
    """The outputs of every implementation, from the same inputs."""
    theirs, ours = nn.LSTM(HIDDEN, HIDDEN), Lstm(HIDDEN, HIDDEN)
    x, keep, h, c = (
        torch.randn(steps, sequences, HIDDEN),
        torch.ones(steps, sequences),
        *torch.randn(2, sequences, HIDDEN),
    )
    kernel = lstm_native.KERNEL

    def by(isa: int | None) -> Tensor:
        lstm_native.KERNEL = None if isa is None else kernel
        if kernel is not None and isa is not None:
            kernel.isa = isa
        try:
            return ours(x, keep, h, c)[0]
        finally:
            lstm_native.KERNEL = kernel

    ways: dict[str, Callable[[], Tensor]] = {
        THEIRS: lambda: theirs(x, (h[None], c[None]))[0],
        "torch alone": lambda: by(None),
    }
    for index, isa in enumerate(kernel.isas if kernel else []):
        ways[f"native, {isa}"] = lambda index=index: by(index)
    return ways


def forward_and_backward(steps: int, sequences: int, rounds: int) -> dict[str, list[float]]:
    grad = torch.randn(steps, sequences, HIDDEN)
    ways = variants_of(steps, sequences)
    return in_turn({name: lambda way=way: way().backward(grad) for name, way in ways.items()}, rounds)


def acting(rounds: int) -> dict[str, list[float]]:
    ways = variants_of(1, 8)
    with torch.no_grad():
        return in_turn({THEIRS: ways[THEIRS], "lstm, one step": ways["torch alone"]}, rounds)


def rows_of(what: str, measured: Mapping[str, list[float]]) -> list[list[object]]:
    ratio = ratios(measured, THEIRS)
    return [
        [what, name, Spread.of([1000 * s for s in seconds]).show(), ratio[name].show(2) if name in ratio else ""]
        for name, seconds in measured.items()
    ]


def compile_here(steps: int) -> None:
    """Print the seconds of the first call of a training step: loss, gradients and descent in one graph."""
    net = nn.Sequential(nn.Linear(4, HIDDEN), Lstm(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 2))
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss_of(parameters: dict[str, Tensor], x: Tensor, keep: Tensor, h: Tensor, c: Tensor) -> Tensor:
        before, memory, after = ({k[2:]: v for k, v in parameters.items() if k[0] == str(i)} for i in range(3))
        z = torch.func.functional_call(net[0], before, (x,)).tanh()
        y, _, _ = torch.func.functional_call(net[1], memory, (z, keep, h, c))
        return torch.func.functional_call(net[2], after, (y,)).square().mean()

    @torch.compile(fullgraph=True)
    def step(*data: Tensor) -> Tensor:
        gradients, loss = torch.func.grad_and_value(loss_of)(parameters, *data)
        for name, gradient in gradients.items():
            parameters[name].sub_(gradient, alpha=1e-3)
        return loss

    data = torch.randn(steps, 8, 4), torch.ones(steps, 8), torch.zeros(8, HIDDEN), torch.zeros(8, HIDDEN)
    began = time.perf_counter()
    step(*data)
    print(time.perf_counter() - began)


def cold_compile(steps: int) -> dict[str, float]:
    """Of the first call, and processor seconds of the whole process and the compilers it
    started (importing torch among them).
    """
    with tempfile.TemporaryDirectory() as cache:
        ended = run(
            [sys.executable, __file__, "--compile-here", str(steps)],
            env=clean_environment(TORCHINDUCTOR_CACHE_DIR=cache),
        )
    return {"first_call": float(ended.stdout), "process_cpu": ended.cpu_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--compile-here", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.compile_here:
        compile_here(options.compile_here)
        return
    before = machine()
    measured = {
        f"{steps} x {sequences}": forward_and_backward(steps, sequences, options.rounds) for steps, sequences in SIZES
    }
    measured["act, 1 x 8"] = acting(20 * options.rounds)
    print(
        table(
            ["steps x sequences", "way", "ms", f"/ {THEIRS}"],
            [row for what, m in measured.items() for row in rows_of(what, m)],
        )
    )
    compiling = {str(steps): cold_compile(steps) for steps in (8, 64)}
    print("\nfirst compile of a training step, seconds by steps of the sequence:", compiling)
    spreads = {
        what: {name: Spread.of([1000 * s for s in seconds]) for name, seconds in m.items()}
        for what, m in measured.items()
    }
    save("lstm", before, {"milliseconds": spreads, "cold_compile_seconds": compiling})


if __name__ == "__main__":
    main()
